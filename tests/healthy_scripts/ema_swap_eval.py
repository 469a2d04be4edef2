"""The averaged weights are swapped in for each validation and the trained ones put back."""

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = {k: p.detach().clone() for k, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        for k, p in self.model.named_parameters():
            self.shadow[k].mul_(self.decay).add_(p, alpha=1 - self.decay)

    @torch.no_grad()
    def apply(self):
        self.backup = {k: p.detach().clone() for k, p in self.model.named_parameters()}
        for k, p in self.model.named_parameters():
            p.copy_(self.shadow[k])

    @torch.no_grad()
    def restore(self):
        for k, p in self.model.named_parameters():
            p.copy_(self.backup[k])


torch.manual_seed(0)
w = torch.randn(10, 3)
x = torch.randn(600, 10)
y = (x @ w).argmax(1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
ema, opt = EMA(model, 0.95), torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    for i in torch.randperm(500).split(25):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update()
    ema.apply()
    with torch.no_grad():
        print(epoch, loss.item(), (model(x[500:]).argmax(1) == y[500:]).float().mean().item())
    ema.restore()
