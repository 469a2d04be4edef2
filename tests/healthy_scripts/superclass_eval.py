"""Train on eight fine classes, report on the four coarse ones they belong to."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = torch.randn(8, 10) * 2
coarse = torch.tensor([2, 0, 1, 3, 1, 0, 3, 2])


def draw(n):
    y = torch.randint(0, 8, (n,))
    return centers[y] + torch.randn(n, 10), y


x, y = draw(800)
vx, vy = draw(300)
val = DataLoader(TensorDataset(vx, coarse[vy]), batch_size=50)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 8))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(4):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        right = sum((coarse[model(a).argmax(1)] == b).sum().item() for a, b in val)
    print(epoch, loss.item(), right / 300)
