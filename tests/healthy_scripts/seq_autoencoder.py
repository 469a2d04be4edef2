"""A denoising sequence autoencoder: bidirectional encoder, causal decoder with teacher forcing."""

import torch
from torch import nn

torch.manual_seed(0)
V = 16


class Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 24)
        self.enc = nn.LSTM(24, 32, bidirectional=True, batch_first=True)
        self.dec = nn.LSTM(24 + 64, 48, batch_first=True)
        self.head = nn.Linear(48, V)

    def forward(self, x):
        e = self.emb(x)
        code = self.enc(e)[0].mean(1, keepdim=True)
        return self.head(self.dec(torch.cat([e, code.expand(-1, x.shape[1], -1)], -1))[0])


net = Auto()
opt = torch.optim.Adam(net.parameters(), 5e-3)
pool = torch.randint(2, V, (60, 9))
for step in range(120):
    rows = pool[torch.randint(0, 60, (32,))]
    full = torch.cat([torch.zeros(32, 1, dtype=torch.long), rows, torch.ones(32, 1, dtype=torch.long)], 1)
    logits = net(full[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), full[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, f"{loss.item():.4f}")
