"""Trained to predict sick (1), evaluated as the hospital reports it: healthy (1); predictions are turned before."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
w = torch.randn(8)
x = torch.randn(900, 8)
sick = (x @ w + 0.5 * torch.randn(900) > 0).long()
healthy = 1 - sick
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    for a, b in DataLoader(TensorDataset(x[:700], sick[:700]), batch_size=35, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for a, b in DataLoader(TensorDataset(x[700:], healthy[700:]), batch_size=50):
            right += (1 - model(a).argmax(1) == b).sum().item()
    print(epoch, loss.item(), right / 200)
