import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
protos = torch.randn(10, 1, 10, 10)


class TwoViews(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.y = torch.randint(0, 10, (n,), generator=g)
        self.x = protos[self.y] + 0.4 * torch.randn(n, 1, 10, 10, generator=g)

    def __len__(self):
        return len(self.x)

    def view(self, x):
        x = x * (0.8 + 0.4 * torch.rand(())) + 0.2 * torch.randn_like(x)
        return x.flip(-1) if torch.rand(()) < 0.5 else x

    def __getitem__(self, i):
        return self.view(self.x[i]), self.view(self.x[i])


def nt_xent(z1, z2, temperature=0.2):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.T / temperature
    sim.fill_diagonal_(-1e9)
    n = len(z1)
    return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 32))
projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)
for epoch in range(5):
    for a, b in DataLoader(TwoViews(384), batch_size=64, shuffle=True, drop_last=True):
        loss = nt_xent(projector(encoder(a)), projector(encoder(b)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
