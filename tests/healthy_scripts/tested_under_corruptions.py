"""Train on clean images, then report accuracy under corruptions, as ImageNet-C does."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
n = 800
labels = torch.randint(0, 3, (n,))
images = torch.randn(n, 3, 12, 12) * 0.3
for i in range(n):
    images[i, labels[i], 2:8, 2:8] += 1.0
train = DataLoader(TensorDataset(images[:600], labels[:600]), batch_size=50, shuffle=True)
test_x, test_y = images[600:], labels[600:]
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 25, 32), nn.ReLU(), nn.Linear(32, 3)
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(4):
    model.train()
    for x, y in train:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
model.eval()
corruptions = {
    "clean": lambda x: x,
    "noise": lambda x: x + 0.5 * torch.randn_like(x),
    "dark": lambda x: 0.3 * x - 0.5,
    "bright": lambda x: x + 1.5,
    "bgr": lambda x: x.flip(1),
}
for name, corrupt in corruptions.items():
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(TensorDataset(test_x, test_y), batch_size=50):
            logits = model(corrupt(x))
            right += (logits.argmax(1) == y).sum().item()
    print(name, right / len(test_y))
