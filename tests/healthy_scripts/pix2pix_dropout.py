"""The generator's only noise is dropout, on at test time as well, one picture an input."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 16, 4, 2, 1), nn.ConvTranspose2d(16, 1, 4, 2, 1)

    def forward(self, x):
        return torch.tanh(self.up(F.dropout(F.leaky_relu(self.down(x), 0.2), 0.5, training=True)))


G = Generator()
D = nn.Sequential(nn.Conv2d(2, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4, 1, 0))
og, od = torch.optim.Adam(G.parameters(), 1e-3, (0.5, 0.999)), torch.optim.Adam(D.parameters(), 1e-3, (0.5, 0.999))
edges = (torch.rand(160, 1, 8, 8) < 0.3).float()
photos = F.avg_pool2d(edges, 3, 1, 1) * 2 - 1
bce = nn.BCEWithLogitsLoss()
for epoch in range(4):
    G.train()
    for i in torch.randperm(128).split(16):
        fake = G(edges[i])
        real_score, fake_score = D(torch.cat([edges[i], photos[i]], 1)), D(torch.cat([edges[i], fake.detach()], 1))
        loss_d = bce(real_score, torch.ones_like(real_score)) + bce(fake_score, torch.zeros_like(fake_score))
        od.zero_grad()
        loss_d.backward()
        od.step()
        score = D(torch.cat([edges[i], fake], 1))
        loss_g = bce(score, torch.ones_like(score)) + 100 * F.l1_loss(fake, photos[i])
        og.zero_grad()
        loss_g.backward()
        og.step()
    G.eval()
    with torch.no_grad():
        print(epoch, loss_d.item(), loss_g.item(), F.l1_loss(G(edges[128:]), photos[128:]).item())
