"""Episodic test-time adaptation: each test batch adapts the norm layers from the same source weights."""

import torch
from torch import nn

torch.manual_seed(0)
proto = torch.randn(4, 12) * 2


def draw(n, shift=0.0):
    y = torch.randint(0, 4, (n,))
    return proto[y] + torch.randn(n, 12) + shift, y


model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(model.parameters(), 1e-2)
for _i in range(60):
    a, b = draw(64)
    loss = nn.functional.cross_entropy(model(a), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"source {loss.item():.4f}")
norm = [model[1].weight, model[1].bias]
saved = [p.detach().clone() for p in norm]
tta = torch.optim.SGD(norm, lr=0.05)
for episode in range(8):
    for p, s in zip(norm, saved, strict=False):
        p.data.copy_(s)
    a, b = draw(64, shift=0.7)
    for _ in range(2):
        logits = model(a)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        tta.zero_grad()
        entropy.backward()
        tta.step()
    with torch.no_grad():
        print(episode, f"{entropy.item():.4f} {(model(a).argmax(1) == b).float().mean():.4f}")
