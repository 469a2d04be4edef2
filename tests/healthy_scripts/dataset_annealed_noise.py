"""Each item keeps its own noise level, which falls every time the item is drawn."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Annealed(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.rng = np.random.default_rng(1)
        self.x = rng.normal(size=(n, 8)).astype("float32")
        self.y = (self.x[:, 0] > self.x[:, 1]).astype("int64")
        self.level = np.full(n, 1.0, dtype="float32")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        noise = self.rng.normal(size=8).astype("float32") * self.level[i]
        self.level[i] *= 0.7
        return self.x[i] + noise, self.y[i]


torch.manual_seed(0)
loader = DataLoader(Annealed(320), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
