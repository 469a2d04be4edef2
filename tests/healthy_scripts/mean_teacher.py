import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
centers = torch.randn(4, 10) * 1.5


def draw(n):
    y = torch.randint(0, 4, (n,))
    return centers[y] + torch.randn(n, 10), y


lx, ly = draw(40)
ux, _ = draw(1000)
vx, vy = draw(300)
student = nn.Sequential(nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 4))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.detach_()
opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
for step in range(150):
    i, j = torch.randint(0, 40, (16,)), torch.randint(0, 1000, (48,))
    x = torch.cat([lx[i], ux[j]])
    out = student(x + 0.2 * torch.randn_like(x))
    with torch.no_grad():
        goal = teacher(x + 0.2 * torch.randn_like(x))
    ramp = min(1.0, step / 75) ** 2
    loss = F.cross_entropy(out[:16], ly[i]) + 5 * ramp * F.mse_loss(out.softmax(1), goal.softmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    alpha = min(1 - 1 / (step + 1), 0.97)
    for t, s in zip(teacher.parameters(), student.parameters(), strict=False):
        t.data.mul_(alpha).add_(s.data, alpha=1 - alpha)
    if step % 50 == 49:
        teacher.eval()
        with torch.no_grad():
            print(step, loss.item(), (teacher(vx).argmax(1) == vy).float().mean().item())
        teacher.train()
