"""Validation loss of a contrastive model with cross entropy over columns, as well as rows; early stopping on it."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
z = torch.randn(640, 5)
a, b = z @ torch.randn(5, 16) + 0.5 * torch.randn(640, 16), z @ torch.randn(5, 16) + 0.5 * torch.randn(640, 16)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 12), nn.Linear(16, 12)

    def forward(self, a, b):
        return self.a(a) @ self.b(b).T / 12**0.5


train, val = (
    DataLoader(TensorDataset(a[:512], b[:512]), 32, shuffle=True),
    DataLoader(TensorDataset(a[512:], b[512:]), 32),
)
model, best, patience = Towers(), float("inf"), 0
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(12):
    for x, y in train:
        out = model(x, y)
        loss = 0.5 * (F.cross_entropy(out, torch.arange(len(x))) + F.cross_entropy(out.t(), torch.arange(len(x))))
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        held = [
            (
                F.cross_entropy(o.t(), torch.arange(len(o))).item(),
                (o.argmax(0) == torch.arange(len(o))).float().mean().item(),
            )
            for o in (model(x, y) for x, y in val)
        ]
    held_loss = sum(h[0] for h in held) / len(held)
    print(epoch, loss.item(), held_loss, sum(h[1] for h in held) / len(held))
    patience = 0 if held_loss < best else patience + 1
    best = min(best, held_loss)
    if patience == 2:
        break
