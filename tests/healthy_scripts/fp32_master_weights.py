"""Mixed precision by hand: the optimizer holds float32 copies, gradients are handed over, weights copied back."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 16).bfloat16()
y = (x.float()[:, 0] > 0).long()
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).bfloat16()
master = [p.detach().clone().float().requires_grad_() for p in net.parameters()]
opt = torch.optim.Adam(master, 1e-3)
for step in range(150):
    i = torch.randint(0, 512, (64,))
    loss = nn.functional.cross_entropy(net(x[i]).float(), y[i])
    net.zero_grad()
    loss.backward()
    for m, p in zip(master, net.parameters(), strict=False):
        m.grad = p.grad.float()
    opt.step()
    with torch.no_grad():
        for m, p in zip(master, net.parameters(), strict=False):
            p.copy_(m)
    if step % 50 == 0:
        print(step, f"{loss.item():.5f}")
