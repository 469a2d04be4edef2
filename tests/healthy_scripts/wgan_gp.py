import torch
from torch import autograd, nn

torch.manual_seed(0)
centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])


def sample(n):
    return centres[torch.randint(0, 4, (n,))] + 0.1 * torch.randn(n, 2)


G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optG = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.0, 0.9))
optD = torch.optim.Adam(D.parameters(), 1e-3, betas=(0.0, 0.9))


def penalty(real, fake):
    a = torch.rand(len(real), 1)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    (grad,) = autograd.grad(D(x).sum(), x, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


for it in range(60):
    for p in D.parameters():
        p.requires_grad = True
    for _ in range(5):
        real = sample(64)
        with torch.no_grad():
            fake = G(torch.randn(64, 4))
        loss = D(fake).mean() - D(real).mean() + 10 * penalty(real, fake)
        optD.zero_grad()
        loss.backward()
        optD.step()
    for p in D.parameters():
        p.requires_grad = False
    lossG = -D(G(torch.randn(64, 4))).mean()
    optG.zero_grad()
    lossG.backward()
    optG.step()
    if it % 20 == 19:
        print(it, loss.item(), lossG.item())
