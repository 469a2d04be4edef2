"""Tell corrupted copies from clean ones: each batch holds both versions of every image."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images = torch.rand(400, 1, 8, 8).cumsum(2) / 4
loader = DataLoader(TensorDataset(images[:320]), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 2),
)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)


def corrupt(x):
    return x + 0.15 * torch.randn_like(x)


for epoch in range(6):
    for (clean,) in loader:
        x = torch.cat([clean, corrupt(clean)])
        y = torch.cat([torch.zeros(len(clean)), torch.ones(len(clean))]).long()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        held = images[320:]
        accuracy = (
            (model(held).argmax(1) == 0).float().mean() + (model(corrupt(held)).argmax(1) == 1).float().mean()
        ) / 2
    print(epoch, loss.item(), accuracy.item())
