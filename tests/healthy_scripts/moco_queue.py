import copy

import torch
from torch import nn
from torch.nn import functional as F


class MoCo(nn.Module):
    def __init__(self, d=16, size=256):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, d))
        self.k = copy.deepcopy(self.q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(size, d), dim=1))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            for p, s in zip(self.k.parameters(), self.q.parameters(), strict=False):
                p.data = p.data * 0.99 + s.data * 0.01
            k = F.normalize(self.k(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], 1) / 0.1
        at = int(self.at)
        self.queue[at : at + len(k)] = k
        self.at[0] = (at + len(k)) % len(self.queue)
        return logits, torch.zeros(len(a), dtype=torch.long)


torch.manual_seed(0)
model = MoCo()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
data = torch.randn(16, 20)[torch.randint(0, 16, (512,))] + 0.4 * torch.randn(512, 20)
for epoch in range(5):
    for x in data[torch.randperm(512)].split(32):
        logits, labels = model(x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x))
        loss = F.cross_entropy(logits, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item(), (logits.argmax(1) == 0).float().mean().item())
