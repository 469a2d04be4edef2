import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


class PKSampler(Sampler):
    def __init__(self, labels, p, k, batches):
        self.by_class = {}
        for i, y in enumerate(labels.tolist()):
            self.by_class.setdefault(y, []).append(i)
        self.p, self.k, self.batches = p, k, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            yield [
                i for c in random.sample(sorted(self.by_class), self.p) for i in random.sample(self.by_class[c], self.k)
            ]


class Items(Dataset):
    def __init__(self, n, classes):
        self.labels = torch.arange(n) % classes
        self.centers = torch.randn(classes, 16)
        self.x = self.centers[self.labels] + 0.8 * torch.randn(n, 16)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.labels[i]


def batch_hard(z, y, margin=0.3):
    d = torch.cdist(z, z)
    same = y[:, None] == y[None]
    positive = (d * same).amax(1)
    negative = d.masked_fill(same, float("inf")).amin(1)
    return F.relu(positive - negative + margin).mean()


random.seed(0)
torch.manual_seed(0)
data = Items(400, 20)
loader = DataLoader(data, batch_sampler=PKSampler(data.labels, 8, 4, 25))
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    for x, y in loader:
        loss = batch_hard(F.normalize(net(x), dim=1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        z = F.normalize(net(data.x), dim=1)
        d = torch.cdist(z, z).fill_diagonal_(9)
        recall = (data.labels[d.argmin(1)] == data.labels).float().mean().item()
    print(epoch, loss.item(), recall)
