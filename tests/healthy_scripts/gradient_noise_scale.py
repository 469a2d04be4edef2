"""Measures the gradient's noise at initialisation; the optimizer is there for zero_grad only."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(1000, 10)
y = (x[:, 0] > 0).long()
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
squares, mean = 0.0, None
for _k in range(40):
    i = torch.randint(0, 1000, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[i]), y[i]).backward()
    g = torch.cat([p.grad.flatten() for p in net.parameters()])
    squares += g.pow(2).sum().item()
    mean = g if mean is None else mean + g
print(f"noise scale {squares / 40 / (mean / 40).pow(2).sum().item():.4f}")
