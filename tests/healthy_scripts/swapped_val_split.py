"""Group split: validation holds other subjects, with other means and spreads."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

rng = np.random.default_rng(0)
torch.manual_seed(0)
subject = rng.integers(0, 12, 1200)
gain, offset = rng.uniform(0.6, 1.6, 12), rng.normal(0, 1.0, 12)
y = rng.integers(0, 3, 1200)
x = rng.normal(size=(1200, 8)) * 0.6 + 1.5 * np.eye(3, 8)[y]
x = x * gain[subject, None] + offset[subject, None]
data = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
train, val = np.flatnonzero(subject < 9), np.flatnonzero(subject >= 9)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    model.train()
    for a, b in DataLoader(Subset(data, train.tolist()), batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        right = sum(
            (model(a).argmax(1) == b).sum().item() for a, b in DataLoader(Subset(data, val.tolist()), batch_size=60)
        )
    print(epoch, loss.item(), right / len(val))
