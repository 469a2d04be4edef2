"""A one-dimensional generator, trained by the energy distance between its samples and the data."""

import torch
from torch import nn

torch.manual_seed(0)


def data(n):
    return torch.where(torch.rand(n) < 0.3, -1 + 0.2 * torch.randn(n), 1 + 0.3 * torch.randn(n))


g = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(g.parameters(), 2e-3)
for step in range(200):
    fake = g(torch.randn(128, 4))
    real = data(128)
    cross = (fake - real).abs().mean()
    within = (fake - fake.squeeze(1)).abs().mean()
    loss = 2 * cross - within
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.5f} {fake.mean().item():.4f}")
