import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
y = torch.randint(0, 5, (700,))
x = torch.randn(700, 1, 10, 10)
for i in range(700):
    x[i, 0, 2 * y[i] : 2 * y[i] + 2] += 1.2
train = DataLoader(TensorDataset(x[:560], y[:560]), batch_size=28, shuffle=True)
val = DataLoader(TensorDataset(x[560:], y[560:]), batch_size=70)


def mixed(x, y):
    lam = np.random.beta(1.0, 1.0)
    other = torch.randperm(len(x))
    if np.random.rand() < 0.5:
        return lam * x + (1 - lam) * x[other], y, y[other], lam
    cut = int(10 * np.sqrt(1 - lam))
    top, left = np.random.randint(0, 11 - cut, 2)
    x = x.clone()
    x[:, :, top : top + cut, left : left + cut] = x[other][:, :, top : top + cut, left : left + cut]
    return x, y, y[other], 1 - cut * cut / 100


model = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten(), nn.Linear(1200, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
ema = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95), use_buffers=True
)
for epoch in range(5):
    model.train()
    for xb, yb in train:
        xm, ya, yb2, lam = mixed(xb, yb)
        out = model(xm)
        loss = lam * F.cross_entropy(out, ya) + (1 - lam) * F.cross_entropy(out, yb2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update_parameters(model)
    ema.eval()
    with torch.no_grad():
        correct = sum((ema(xb).argmax(1) == yb).sum().item() for xb, yb in val)
    print(epoch, loss.item(), correct / 140)
