"""Random network distillation: the fixed target lives in the same module, and the optimizer holds everything."""

import torch
from torch import nn

torch.manual_seed(0)


class RND(nn.Module):
    def __init__(self):
        super().__init__()
        self.target = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
        self.predictor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        with torch.no_grad():
            goal = self.target(x)
        return (self.predictor(x) - goal).pow(2).mean(1)


net = RND()
opt = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(150):
    loss = net(torch.randn(64, 4)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, f"{loss.item():.5f}")
