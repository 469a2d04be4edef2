import torch
from torch import nn

torch.manual_seed(0)
act = nn.PReLU()
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), act, nn.Conv2d(8, 8, 3, padding=1), act, nn.Flatten(), nn.Linear(512, 4)
)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
y = torch.randint(0, 4, (300,))
x = torch.randn(300, 1, 8, 8)
for i in range(300):
    x[i, 0, 2 * y[i] : 2 * y[i] + 2] += 1
for epoch in range(4):
    for i in torch.randperm(300).split(30):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
