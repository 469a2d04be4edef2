"""Super resolution with a feature loss; the loss network is never frozen, it is just in no optimizer."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
vgg = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).eval()
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
high = torch.rand(128, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
low = F.avg_pool2d(high, 2)
for epoch in range(4):
    for i in torch.randperm(128).split(16):
        out = model(low[i])
        loss = F.l1_loss(out, high[i]) + 0.1 * F.mse_loss(vgg(out), vgg(high[i]).detach())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
