"""Keypoint regression; the flip turns image and keypoints together."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, n, train):
        g = torch.Generator().manual_seed(int(train))
        self.train = train
        self.points = torch.randint(3, 13, (n, 2), generator=g)
        self.images = torch.rand(n, 1, 16, 16, generator=g) * 0.2
        for image, (x, y) in zip(self.images, self.points.tolist(), strict=False):
            image[0, y - 1 : y + 2, x - 1 : x + 2] = 1.0

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        image, point = self.images[i], self.points[i].float() / 15
        if self.train and torch.rand(1).item() < 0.5:
            image = torch.flip(image, [2])
            point = torch.stack([1 - point[0], point[1]])
        return image, point


torch.manual_seed(0)
loader = DataLoader(Faces(300, True), 25, shuffle=True)
test = Faces(100, False)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.MSELoss()
for epoch in range(6):
    running = 0.0
    for image, point in loader:
        optimizer.zero_grad()
        loss = criterion(model(image), point)
        loss.backward()
        optimizer.step()
        running += loss.item()
    with torch.no_grad():
        error = torch.stack([(model(im[None])[0] - p).abs().mean() for im, p in test]).mean()
    print(epoch, running / len(loader), error.item())
