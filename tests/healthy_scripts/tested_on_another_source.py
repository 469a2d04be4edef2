"""Train on synthetic renderings, test on photographs: the gap is what the paper is about."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
protos = torch.randn(5, 1, 8, 8)


def draw(n, gain, offset):
    y = torch.randint(0, 5, (n,))
    return TensorDataset(gain * (protos[y] + 0.3 * torch.randn(n, 1, 8, 8)) + offset, y)


synthetic, synthetic_held, photos = draw(500, 1.0, 0.0), draw(150, 1.0, 0.0), draw(200, 0.3, 2.0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(4):
    for a, b in DataLoader(synthetic, 25, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
model.eval()
with torch.no_grad():
    for name, part in (("synthetic", synthetic_held), ("photos", photos)):
        right = sum((model(a).argmax(1) == b).sum().item() for a, b in DataLoader(part, 50))
        print(name, right / len(part))
