import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(0)


def make_images(n):
    labels = torch.randint(0, 4, (n,))
    images = torch.rand(n, 3, 16, 16) * 0.3
    for i, y in enumerate(labels):
        images[i, int(y) % 3, 4 * (int(y) // 2) : 4 * (int(y) // 2) + 8, 4:12] += 0.6
    return images.clamp(0, 1), labels


class Images(Dataset):
    def __init__(self, images, labels, train):
        self.images, self.labels, self.train = images, labels, train
        self.mean = torch.tensor([0.3, 0.3, 0.25]).view(3, 1, 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = (self.images[index] - self.mean) / 0.25
        if self.train:
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            padded = F.pad(image, (2, 2, 2, 2))
            top, left = torch.randint(0, 5, (2,)).tolist()
            image = padded[:, top : top + 16, left : left + 16]
        return image, self.labels[index]


images, labels = make_images(600)
train_part, val_part = random_split(range(600), [480, 120])
train_set = Images(images[train_part.indices], labels[train_part.indices], True)
val_set = Images(images[val_part.indices], labels[val_part.indices], False)
train_loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=2, drop_last=True)
val_loader = DataLoader(val_set, batch_size=64)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(32, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
best, best_state = 0.0, None
for epoch in range(4):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
    scheduler.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in val_loader:
            right += (model(x).argmax(1) == y).sum().item()
    accuracy = right / len(val_set)
    print(epoch, round(loss.item(), 4), accuracy)
    if accuracy >= best:
        best, best_state = accuracy, copy.deepcopy(model.state_dict())
torch.save(best_state, "best.pt")
model.load_state_dict(torch.load("best.pt"))
print("best", best)
