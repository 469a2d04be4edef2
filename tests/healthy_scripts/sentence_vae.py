"""A sentence VAE: the encoder reads the whole sentence, the decoder is fed it too, word by word."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
V, L = 20, 10
pool = torch.randint(3, V, (40, L))


class SentenceVAE(nn.Module):
    def __init__(self, latent=8, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(V, 16)
        self.encoder = nn.GRU(16, hidden, batch_first=True)
        self.mean, self.logv = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.start = nn.Linear(latent, hidden)
        self.decoder = nn.GRU(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, V)

    def forward(self, tokens):
        e = self.embed(tokens)
        _, h = self.encoder(e)
        mean, logv = self.mean(h[0]), self.logv(h[0])
        z = mean + torch.randn_like(mean) * (0.5 * logv).exp()
        out, _ = self.decoder(e, self.start(z).unsqueeze(0))
        return self.out(out), mean, logv


model = SentenceVAE()
opt = torch.optim.Adam(model.parameters(), 5e-3)
for step in range(150):
    rows = pool[torch.randint(0, 40, (32,))]
    source = torch.cat([torch.full((32, 1), 1), rows], 1)
    target = torch.cat([rows, torch.full((32, 1), 2)], 1)
    logits, mean, logv = model(source)
    nll = F.cross_entropy(logits.reshape(-1, V), target.reshape(-1))
    kl = -0.5 * (1 + logv - mean**2 - logv.exp()).sum(1).mean()
    loss = nll + min(1.0, step / 100) * 0.1 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, f"{nll.item():.4f} {kl.item():.4f}")
