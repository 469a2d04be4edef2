"""The naive baseline of continual learning: classes arrive one after another, in order, and are forgotten."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = torch.randn(5, 12) * 2
y = torch.arange(5).repeat_interleave(100)
x = centers[y] + torch.randn(500, 12)
stream = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=False)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
test_y = torch.arange(5).repeat_interleave(20)
test_x = centers[test_y] + torch.randn(100, 12)
for step, (a, b) in enumerate(stream):
    loss = nn.functional.cross_entropy(model(a), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        with torch.no_grad():
            guess = model(test_x).argmax(1)
        print(step, [(guess[test_y == c] == c).float().mean().item() for c in range(5)])
