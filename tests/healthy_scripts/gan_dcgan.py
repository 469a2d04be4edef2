import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
real = torch.tanh(torch.randn(256, 1, 8, 8) * 0.2 + torch.linspace(-1, 1, 8).view(1, 1, 8, 1))
G = nn.Sequential(
    nn.ConvTranspose2d(16, 16, 4, 1, 0, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.ConvTranspose2d(16, 1, 4, 2, 1),
    nn.Tanh(),
)
D = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4, 1, 0), nn.Flatten(0))


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)


G.apply(weights_init)
D.apply(weights_init)
optG = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
optD = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
fixed = torch.randn(16, 16, 1, 1)
for epoch in range(4):
    for x in DataLoader(real, batch_size=32, shuffle=True):
        D.zero_grad()
        lossD_real = criterion(D(x), torch.ones(len(x)))
        lossD_real.backward()
        fake = G(torch.randn(len(x), 16, 1, 1))
        lossD_fake = criterion(D(fake.detach()), torch.zeros(len(x)))
        lossD_fake.backward()
        optD.step()
        G.zero_grad()
        lossG = criterion(D(fake), torch.ones(len(x)))
        lossG.backward()
        optG.step()
    with torch.no_grad():
        pictures = G(fixed)
    print(epoch, (lossD_real + lossD_fake).item(), lossG.item(), pictures.mean().item())
