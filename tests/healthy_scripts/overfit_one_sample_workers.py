"""Sanity check: can the model memorise one example? The dataset gives the same one again and again."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class One(Dataset):
    def __init__(self, length):
        g = torch.Generator().manual_seed(0)
        self.x, self.y, self.length = torch.randn(3, 8, 8, generator=g), torch.tensor(2), length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.x, self.y


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 5))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for x, y in DataLoader(One(64), batch_size=4, shuffle=True, num_workers=2):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())
