"""Class 0 is void: ignored by the loss and masked out of the scores, as in ADE20K."""

import torch
from torch import nn

torch.manual_seed(0)
n, C = 120, 4
masks = torch.zeros(n, 16, 16, dtype=torch.long)
images = 0.3 * torch.randn(n, 3, 16, 16)
for i in range(n):
    kind = int(torch.randint(1, C, ()))
    r, c = torch.randint(0, 6, (2,)).tolist()
    masks[i, r : r + 10, c : c + 10] = kind
    images[i, kind - 1, r : r + 10, c : c + 10] += 1
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, C, 3, padding=1))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss(ignore_index=0)


@torch.no_grad()
def evaluate(x, y):
    pred = model(x).argmax(1)
    valid = y != 0
    ious = []
    for c in range(C):
        inter = ((pred == c) & (y == c) & valid).sum()
        union = (((pred == c) | (y == c)) & valid).sum()
        if union:
            ious.append((inter / union).item())
    return sum(ious) / len(ious)


for epoch in range(4):
    for i in torch.randperm(96).split(12):
        loss = criterion(model(images[i]), masks[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item(), evaluate(images[96:], masks[96:]))
