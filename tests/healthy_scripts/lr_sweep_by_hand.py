"""One model, one optimizer, five learning rates: weights are put back by hand before each."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(256, 5)
y = x @ torch.randn(5, 1) + 0.1 * torch.randn(256, 1)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
start = [p.detach().clone() for p in model.parameters()]
opt = torch.optim.SGD(model.parameters(), lr=0.1)
results = {}
for lr in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3):
    with torch.no_grad():
        for p, s in zip(model.parameters(), start, strict=False):
            p.copy_(s)
    for g in opt.param_groups:
        g["lr"] = lr
    for _step in range(20):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
    results[lr] = loss.item()
    print(lr, f"{loss.item():.5f}")
print("best", min(results, key=results.get))
