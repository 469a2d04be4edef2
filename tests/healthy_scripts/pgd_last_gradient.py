"""Adversarial training: the inner loop climbs on the perturbation, the step takes the last gradient."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 8)
y = (x[:, 0] + x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.2)
for epoch in range(4):
    for idx in torch.randperm(512).split(64):
        delta = torch.zeros_like(x[idx], requires_grad=True)
        for _ in range(4):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x[idx] + delta), y[idx])
            loss.backward()
            delta.data = (delta + 0.05 * delta.grad.sign()).clamp(-0.1, 0.1)
            delta.grad.zero_()
        opt.step()
    print(epoch, f"{loss.item():.5f}")
