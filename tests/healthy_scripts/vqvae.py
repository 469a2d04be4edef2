import torch
from torch import nn
from torch.nn import functional as F


class Quantizer(nn.Module):
    def __init__(self, codes, dim, commitment=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codebook.weight, -1 / codes, 1 / codes)
        self.commitment = commitment

    def forward(self, z):
        distance = torch.cdist(z, self.codebook.weight)
        index = distance.argmin(-1)
        quantized = self.codebook(index)
        loss = F.mse_loss(quantized, z.detach()) + self.commitment * F.mse_loss(z, quantized.detach())
        return z + (quantized - z).detach(), loss, index


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
        self.quantizer = Quantizer(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        quantized, loss, index = self.quantizer(self.encoder(x))
        return self.decoder(quantized), loss, index


torch.manual_seed(0)
prototypes = torch.randn(8, 20)
x = prototypes[torch.randint(0, 8, (512,))] + 0.1 * torch.randn(512, 20)
model = VQVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for batch in x.split(32):
        out, vq, index = model(batch)
        loss = F.mse_loss(out, batch) + vq
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), index.unique().numel())
