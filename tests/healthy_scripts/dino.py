import copy

import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 32))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False
center = torch.zeros(1, 32)
opt = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
data = torch.randn(10, 16)[torch.randint(0, 10, (512,))] + 0.4 * torch.randn(512, 16)
for epoch in range(6):
    for x in data[torch.randperm(512)].split(64):
        views = [x + s * torch.randn_like(x) for s in (0.1, 0.1, 0.4, 0.4)]
        with torch.no_grad():
            targets = teacher(torch.cat(views[:2]))
        q = ((targets - center) / 0.04).softmax(-1).chunk(2)
        s = (student(torch.cat(views)) / 0.1).log_softmax(-1).chunk(4)
        terms = [-(q[i] * s[j]).sum(-1).mean() for i in range(2) for j in range(4) if i != j]
        loss = sum(terms) / len(terms)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        opt.step()
        with torch.no_grad():
            center = 0.9 * center + 0.1 * targets.mean(0, keepdim=True)
            for t, p in zip(teacher.parameters(), student.parameters(), strict=False):
                t.mul_(0.99).add_(p, alpha=0.01)
    print(epoch, loss.item())
