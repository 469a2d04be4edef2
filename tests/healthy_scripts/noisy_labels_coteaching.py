"""Two networks pick clean rows for each other; 45 % of the labels are flipped to the next class."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = torch.randn(4, 10) * 2
y = torch.randint(0, 4, (800,))
x = centers[y] + torch.randn(800, 10)
noisy = torch.where(torch.rand(800) < 0.45, (y + 1) % 4, y)
nets = [nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 4)) for _ in range(2)]
opts = [torch.optim.Adam(n.parameters(), lr=2e-3) for n in nets]
for epoch in range(5):
    keep = 1 - min(0.45, 0.1 * epoch)
    for a, b in DataLoader(TensorDataset(x[:600], noisy[:600]), 50, shuffle=True):
        losses = [F.cross_entropy(n(a), b, reduction="none") for n in nets]
        picks = [one.argsort()[: int(keep * len(b))] for one in losses]
        for k in (0, 1):
            loss = losses[k][picks[1 - k]].mean()
            opts[k].zero_grad()
            loss.backward()
            opts[k].step()
    with torch.no_grad():
        print(epoch, loss.item(), [(n(x[600:]).argmax(1) == y[600:]).float().mean().item() for n in nets])
