"""One-class: pull normal examples to a fixed centre; anomaly score on a mixed test set."""

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
normal = torch.randn(500, 16) @ torch.randn(16, 16) * 0.3
net = nn.Sequential(nn.Linear(16, 32, bias=False), nn.LeakyReLU(0.1), nn.Linear(32, 8, bias=False))
with torch.no_grad():
    centre = net(normal).mean(0)
    centre[centre.abs() < 0.1] = 0.1
opt = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-6)
for epoch in range(6):
    for x in DataLoader(normal[:400], batch_size=40, shuffle=True):
        loss = ((net(x) - centre) ** 2).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
test = torch.cat([normal[400:], torch.randn(100, 16) * 2])
label = torch.cat([torch.zeros(100), torch.ones(100)])
net.eval()
with torch.no_grad():
    score = ((net(test) - centre) ** 2).sum(1)
rank = score.argsort().argsort().float()
auc = (rank[label == 1].mean() - 49.5) / 100
print("auc", auc.item())
