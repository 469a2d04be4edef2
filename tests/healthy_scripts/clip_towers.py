import math

import torch
from torch import nn
from torch.nn import functional as F


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 24))
        self.token = nn.Embedding(30, 24, padding_idx=0)
        self.gru = nn.GRU(24, 24, batch_first=True)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        i = F.normalize(self.image(image), dim=-1)
        _, h = self.gru(self.token(text))
        t = F.normalize(h[-1], dim=-1)
        return self.logit_scale.exp().clamp(max=100) * i @ t.t()


torch.manual_seed(0)
concepts = torch.randn(29, 1, 9, 9)
n = 512
a, b = torch.randint(1, 30, (n,)), torch.randint(1, 30, (n,))
images = concepts[a - 1] + concepts[b - 1] + 0.1 * torch.randn(n, 1, 9, 9)
texts = torch.stack([a, b, torch.zeros(n, dtype=torch.long)], 1)
model = Clip()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.2)
for epoch in range(6):
    for index in torch.randperm(n).split(64):
        logits = model(images[index], texts[index])
        labels = torch.arange(len(index))
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), model.logit_scale.exp().item())
