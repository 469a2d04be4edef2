import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.block = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.block(self.stem(x)))


def data(n, centers):
    y = torch.randint(0, len(centers), (n,))
    return centers[y] + 0.6 * torch.randn(n, 16), y


torch.manual_seed(0)
source, target = torch.randn(8, 16), torch.randn(3, 16)
model = Net(8)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    x, y = data(64, source)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
torch.save(model.state_dict(), "pretrained.pt")
print("pretrained", loss.item())

model = Net(3)
state = {k: v for k, v in torch.load("pretrained.pt", weights_only=True).items() if not k.startswith("head")}
print(model.load_state_dict(state, strict=False))
for p in [*model.stem.parameters(), *model.block.parameters()]:
    p.requires_grad = False
opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
for step in range(60):
    if step == 20:
        for p in model.block.parameters():
            p.requires_grad = True
        opt.add_param_group({"params": model.block.parameters(), "lr": 0.01})
    if step == 40:
        for p in model.stem.parameters():
            p.requires_grad = True
        opt.add_param_group({"params": model.stem.parameters(), "lr": 0.002})
    x, y = data(32, target)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
model.eval()
x, y = data(200, target)
with torch.no_grad():
    print("accuracy", (model(x).argmax(1) == y).float().mean().item())
