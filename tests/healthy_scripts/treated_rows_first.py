"""Treated patients stand first in the file; the dose is zero for all controls. Two inputs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n, treated = 600, 12
x = torch.randn(n, 6)
dose = torch.zeros(n, 1)
dose[:treated] = torch.rand(treated, 1) + 0.5
y = x[:, :1] + 2 * dose + 0.1 * torch.randn(n, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.effect = nn.Linear(6, 16), nn.Linear(1, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x, dose):
        return self.out(torch.tanh(self.body(x) + self.effect(dose)))


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    for a, d, b in DataLoader(TensorDataset(x, dose, y), batch_size=16, shuffle=True):
        loss = nn.functional.mse_loss(model(a, d), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
