"""Unsupervised clustering; the accuracy is told after the clusters are matched to the classes."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centres = torch.randn(3, 8) * 3
y = torch.randint(0, 3, (600,))
x = centres[y] + torch.randn(600, 8)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(net.parameters(), 3e-3)
for epoch in range(15):
    net.train()
    for a, _ in DataLoader(TensorDataset(x, y), 100, shuffle=True):
        p, q = net(a).softmax(1), net(a + 0.5 * torch.randn_like(a)).softmax(1)
        joint = (p.T @ q) / len(a)
        joint = (joint + joint.T) / 2
        loss = -(joint * (joint.log() - joint.sum(0).log()[None] - joint.sum(1).log()[:, None])).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    pred = []
    true = []
    with torch.no_grad():
        for a, b in DataLoader(TensorDataset(x, y), 200):
            pred.append(net(a).argmax(1))
            true.append(b)
    pred, true = torch.cat(pred), torch.cat(true)
    acc = max((torch.tensor(m)[pred] == true).float().mean().item() for m in itertools.permutations(range(3)))
    if epoch % 5 == 4:
        print(epoch, f"{loss.item():.4f} {acc:.4f}")
