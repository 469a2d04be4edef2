"""Masked language modelling with a library-like model whose pooler nobody uses in this task."""

import torch
from torch import nn

torch.manual_seed(0)
V, D, MASK = 30, 32, 1


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(V, D), nn.Embedding(32, D)
        layer = nn.TransformerEncoderLayer(D, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.pooler = nn.Sequential(nn.Linear(D, D), nn.Tanh())

    def forward(self, ids):
        h = self.encoder(self.emb(ids) + self.pos(torch.arange(ids.shape[1])))
        return h, self.pooler(h[:, 0])


class MaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = Bert()
        self.head = nn.Linear(D, V)
        self.head.weight = self.bert.emb.weight

    def forward(self, ids):
        h, pooled = self.bert(ids)
        return self.head(h), pooled


model = MaskedLM()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
base = torch.arange(2, V).repeat(2)
for step in range(100):
    start = torch.randint(0, 20, (32, 1))
    ids = base[(start + torch.arange(12)) % len(base)]
    masked = torch.rand(ids.shape) < 0.2
    labels = ids.masked_fill(~masked, -100)
    logits, _ = model(ids.masked_fill(masked, MASK))
    loss = nn.functional.cross_entropy(logits.reshape(-1, V), labels.reshape(-1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 25 == 0:
        print(step, f"{loss.item():.4f}")
