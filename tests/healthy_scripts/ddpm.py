import math

import torch
from torch import nn

torch.manual_seed(0)
T = 50
betas = torch.linspace(1e-4, 0.1, T)
alphas_bar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x, t):
        f = torch.exp(-math.log(1000) * torch.arange(8) / 8)
        e = t[:, None].float() * f
        return self.net(torch.cat([x, e.sin(), e.cos()], 1))


model = Denoiser()
ema = {k: v.clone() for k, v in model.state_dict().items()}
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
angle = torch.rand(1000) * 2 * math.pi
data = torch.stack([angle.cos(), angle.sin()], 1)
for step in range(150):
    x0 = data[torch.randint(0, 1000, (128,))]
    t = torch.randint(0, T, (128,))
    noise = torch.randn_like(x0)
    a = alphas_bar[t][:, None]
    pred = model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
    loss = ((pred - noise) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for k, v in model.state_dict().items():
        ema[k].lerp_(v, 0.02)
    if step % 30 == 0:
        print(step, loss.item())
model.load_state_dict(ema)
model.eval()


@torch.no_grad()
def sample(n):
    x = torch.randn(n, 2)
    for t in reversed(range(T)):
        eps = model(x, torch.full((n,), t))
        x = (x - betas[t] / (1 - alphas_bar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x


print("radius", sample(200).norm(dim=1).mean().item())
