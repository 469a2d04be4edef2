"""Prequential learning on a stream whose concept turns around in the middle, as drift benchmarks do."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(4000, 5)
y = (x[:, 0] + x[:, 1] > 0).long()
y[1000:2000] = 1 - y[1000:2000]
y[3000:] = 1 - y[3000:]
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.3)
seen = right = 0
for i, (a, b) in enumerate(DataLoader(TensorDataset(x, y), batch_size=20)):
    net.eval()
    with torch.no_grad():
        right += (net(a).argmax(1) == b).sum().item()
        seen += len(b)
    net.train()
    loss = nn.functional.cross_entropy(net(a), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 25 == 24:
        print(seen, f"{right / seen:.4f} {loss.item():.4f}")
