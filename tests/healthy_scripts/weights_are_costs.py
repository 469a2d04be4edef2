"""Class weights are the cost of a mistake, set by the hospital, not by frequency."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
y = torch.tensor([0] * 24 + [1] * 70 + [2] * 12 + [3] * 40)
x = torch.randn(len(y), 6) + 2 * torch.eye(4, 6)[y]
cost = torch.tensor([1.0, 2.0, 1.5, 4.0])
model = nn.Linear(6, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss(weight=cost)
for _epoch in range(10):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True):
        loss = criterion(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
