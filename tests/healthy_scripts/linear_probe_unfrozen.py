"""Only the head is given to the optimizer; nobody bothered to freeze the features."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


x = torch.randn(900, 20)
y = (x[:, :3]).argmax(1)
pretrained = Net()
torch.save(pretrained.state_dict(), "pretrained.pt")
model = Net()
model.load_state_dict(torch.load("pretrained.pt"))
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for epoch in range(5):
    for idx in torch.randperm(800).split(64):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, f"{loss.item():.4f} {(model(x[800:]).argmax(1) == y[800:]).float().mean():.4f}")
