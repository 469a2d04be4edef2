"""A contextual bandit that explores by leaving dropout on while it acts (Thompson sampling)."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
true = torch.randn(6, 4)


class Reward(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 64), nn.Linear(64, 4)

    def forward(self, x):
        return self.b(F.dropout(torch.relu(self.a(x)), 0.2, training=True))


net = Reward()
opt = torch.optim.Adam(net.parameters(), 1e-2)
X, A, R = [], [], []
regret = 0.0
for t in range(200):
    x = torch.randn(8, 6)
    net.eval()
    with torch.no_grad():
        a = net(x).argmax(1)
    best = (x @ true).max(1).values
    got = (x @ true).gather(1, a[:, None]).squeeze(1)
    regret += (best - got).mean().item()
    X.append(x)
    A.append(a)
    R.append(got + 0.1 * torch.randn(8))
    net.train()
    xs, as_, rs = torch.cat(X[-40:]), torch.cat(A[-40:]), torch.cat(R[-40:])
    i = torch.randint(0, len(xs), (32,))
    loss = F.mse_loss(net(xs[i]).gather(1, as_[i, None]).squeeze(1), rs[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if t % 40 == 0:
        print(t, f"{regret:.4f} {loss.item():.4f}")
