import torch
from torch import nn

torch.manual_seed(0)
clean = torch.sin(torch.linspace(0, 9, 24))[:, None] * torch.cos(torch.linspace(0, 7, 24))
noisy = (clean + 0.3 * torch.randn(24, 24))[None, None]
z = torch.randn(1, 8, 12, 12)
net = nn.Sequential(
    nn.Conv2d(8, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.LeakyReLU(),
    nn.Upsample(scale_factor=2),
    nn.Conv2d(24, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.LeakyReLU(),
    nn.Conv2d(24, 1, 1),
)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(80):
    out = net(z + 0.03 * torch.randn_like(z))
    loss = nn.functional.mse_loss(out, noisy)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item(), ((out - clean) ** 2).mean().item())
