"""Bayesian net: one stochastic pass per epoch to follow progress, thirty at the end."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 64), nn.Linear(64, 3)

    def forward(self, x):
        return self.b(F.dropout(F.relu(self.a(x)), p=0.3, training=True))


w = torch.randn(6, 3)
x = torch.randn(500, 6)
y = (x @ w).argmax(1)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(5):
    net.train()
    for i in torch.randperm(400).split(40):
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        print(epoch, F.cross_entropy(net(x[400:]), y[400:]).item())
with torch.no_grad():
    p = torch.stack([net(x[400:]).softmax(1) for _ in range(30)])
print("accuracy", (p.mean(0).argmax(1) == y[400:]).float().mean().item(), "spread", p.std(0).mean().item())
