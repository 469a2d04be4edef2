"""Heavy photometric augmentation and random erasing in training; evaluation on the plain picture."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
protos = torch.rand(6, 3, 10, 10)


class Pictures(Dataset):
    def __init__(self, n, augment):
        self.y = torch.randint(0, 6, (n,))
        self.x = (protos[self.y] + 0.2 * torch.randn(n, 3, 10, 10)).clamp(0, 1)
        self.augment = augment

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.augment:
            x = x * torch.empty(3, 1, 1).uniform_(0.3, 1.7) + torch.empty(3, 1, 1).uniform_(-0.4, 0.4)
            x = x[torch.randperm(3)] if torch.rand(()) < 0.2 else x
            top, left = torch.randint(0, 6, (2,)).tolist()
            x = x.clone()
            x[:, top : top + 4, left : left + 4] = 0
        return x, self.y[i]


model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 6))
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
train, val = Pictures(600, True), Pictures(200, False)
for epoch in range(4):
    model.train()
    for a, b in DataLoader(train, 40, shuffle=True):
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(a).argmax(1) == b).sum().item() for a, b in DataLoader(val, 50))
    print(epoch, loss.item(), right / 200)
