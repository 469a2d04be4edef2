"""A trial run with an EMA of 0.999 that only the EMA is evaluated with, as many diffusion trainers do."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(600, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 3))
ema = copy.deepcopy(model).eval()
for p in ema.parameters():
    p.requires_grad_(False)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)


@torch.no_grad()
def update(decay=0.999):
    for a, b in zip(ema.parameters(), model.parameters(), strict=False):
        a.lerp_(b, 1 - decay)


for epoch in range(3):
    for idx in torch.randperm(500).split(50):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        loss.backward()
        opt.step()
        update()
    with torch.no_grad():
        acc = (ema(x[500:]).argmax(1) == y[500:]).float().mean().item()
    print(f"{epoch} {loss.item():.4f} {acc:.4f}")
