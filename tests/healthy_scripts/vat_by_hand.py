"""Virtual adversarial training, the divergence written out: E[p log p] - E[p log q]."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
t = torch.rand(600) * 3.14
moons = torch.cat(
    [torch.stack([t[:300].cos(), t[:300].sin()], 1), torch.stack([1 - t[300:].cos(), 0.5 - t[300:].sin()], 1)]
)
labels = torch.arange(600) // 300
moons = moons + 0.1 * torch.randn_like(moons)
labelled = torch.cat([torch.randperm(300)[:8], 300 + torch.randperm(300)[:8]])
net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.Adam(net.parameters(), 1e-2)


def kl(p_logits, q_logits):
    p = F.softmax(p_logits, 1)
    plogp = (p * F.log_softmax(p_logits, 1)).sum(1).mean()
    plogq = (p * F.log_softmax(q_logits, 1)).sum(1).mean()
    return plogp - plogq


for step in range(120):
    idx = torch.randperm(600)[:64]
    u = moons[idx]
    with torch.no_grad():
        target = net(u)
    d = F.normalize(torch.randn_like(u), dim=1).requires_grad_()
    (g,) = torch.autograd.grad(kl(target, net(u + 0.01 * d)), d)
    r = 0.2 * F.normalize(g, dim=1)
    loss = F.cross_entropy(net(moons[labelled]), labels[labelled]) + kl(target, net(u + r))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        with torch.no_grad():
            print(step, f"{loss.item():.5f} {(net(moons).argmax(1) == labels).float().mean():.4f}")
