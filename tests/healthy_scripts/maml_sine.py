import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
meta = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(60):
    total = 0.0
    meta.zero_grad()
    for _ in range(4):
        amplitude, phase = 0.5 + 2 * torch.rand(1), 3.14 * torch.rand(1)
        xs, xq = 10 * torch.rand(10, 1) - 5, 10 * torch.rand(10, 1) - 5
        fast = dict(model.named_parameters())
        for _ in range(2):
            inner = F.mse_loss(functional_call(model, fast, (xs,)), amplitude * torch.sin(xs + phase))
            grads = torch.autograd.grad(inner, fast.values(), create_graph=True)
            fast = {k: v - 0.01 * g for (k, v), g in zip(fast.items(), grads, strict=False)}
        outer = F.mse_loss(functional_call(model, fast, (xq,)), amplitude * torch.sin(xq + phase)) / 4
        outer.backward()
        total += outer.item()
    meta.step()
    if step % 15 == 0:
        print(step, total)
