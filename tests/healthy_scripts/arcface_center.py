import torch
from torch import nn
from torch.nn import functional as F


class ArcFace(nn.Module):
    def __init__(self, d, classes, s=16.0, m=0.2):
        super().__init__()
        self.weight, self.s, self.m = nn.Parameter(torch.randn(classes, d) * 0.1), s, m

    def forward(self, z, y):
        cos = F.linear(F.normalize(z), F.normalize(self.weight)).clamp(-1 + 1e-6, 1 - 1e-6)
        turned = torch.cos(torch.acos(cos) + self.m)
        return self.s * torch.where(F.one_hot(y, len(self.weight)).bool(), turned, cos)


class Center(nn.Module):
    def __init__(self, d, classes):
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(classes, d))

    def forward(self, z, y):
        return ((z - self.centers[y]) ** 2).sum(1).mean() / 2


torch.manual_seed(0)
protos = torch.randn(12, 20)
net = nn.Sequential(nn.Linear(20, 48), nn.PReLU(), nn.Linear(48, 8))
arc, center = ArcFace(8, 12), Center(8, 12)
opt = torch.optim.SGD([*net.parameters(), *arc.parameters()], lr=0.05, momentum=0.9, weight_decay=5e-4)
opt_center = torch.optim.SGD(center.parameters(), lr=0.5)
for step in range(100):
    y = torch.randint(0, 12, (48,))
    z = net(protos[y] + 0.5 * torch.randn(48, 20))
    loss = F.cross_entropy(arc(z, y), y) + 0.01 * center(z, y)
    opt.zero_grad()
    opt_center.zero_grad()
    loss.backward()
    for p in center.parameters():
        p.grad.data *= 1 / 0.01
    opt.step()
    opt_center.step()
    if step % 25 == 24:
        print(step, loss.item())
