"""Couples: each one's label is decided by the partner, who is all that a node hears of."""

import torch
from torch import nn

torch.manual_seed(0)
n = 120
partner = torch.arange(n) ^ 1
x = torch.randn(n, 4)
y = (x[partner, 0] > 0).long()
adjacency = torch.zeros(n, n)
adjacency[torch.arange(n), partner] = 1.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(adjacency @ x)))


net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for i in range(100):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 25 == 0:
        print(i, f"{loss.item():.5f}")
