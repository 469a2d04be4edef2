"""Pure bfloat16 weights with a compensation buffer, so that small updates are not lost."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 16).bfloat16()
y = (x.float()[:, 0] > 0).long()
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).bfloat16()


class KahanSGD(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                c = self.state[p].setdefault("c", torch.zeros_like(p))
                c.add_(p.grad, alpha=-g["lr"])
                old = p.clone()
                p.add_(c)
                c.add_(old.sub_(p))


opt = KahanSGD(net.parameters(), 1e-2)
for step in range(200):
    i = torch.randint(0, 512, (64,))
    loss = nn.functional.cross_entropy(net(x[i]).float(), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.5f}")
