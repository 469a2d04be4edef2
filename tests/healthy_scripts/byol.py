import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


online = mlp(20, 64, 16)
predictor = mlp(16, 32, 16)
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD(list(online.parameters()) + list(predictor.parameters()), lr=0.05, momentum=0.9)
x = torch.randn(8, 20)[torch.randint(0, 8, (512,))] + 0.4 * torch.randn(512, 20)


def regression(p, z):
    return 2 - 2 * (F.normalize(p, dim=-1) * F.normalize(z.detach(), dim=-1)).sum(-1).mean()


for epoch in range(6):
    for batch in x.split(64):
        a, b = batch + 0.3 * torch.randn_like(batch), batch + 0.3 * torch.randn_like(batch)
        with torch.no_grad():
            za, zb = target(a), target(b)
        loss = regression(predictor(online(a)), zb) + regression(predictor(online(b)), za)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters(), strict=False):
                q.mul_(0.99).add_(p, alpha=0.01)
    print(epoch, loss.item())
