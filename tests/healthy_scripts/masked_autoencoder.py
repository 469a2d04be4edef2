import torch
from torch import nn


class MAE(nn.Module):
    def __init__(self, patches=16, dim=32, pixels=9):
        super().__init__()
        self.embed = nn.Linear(pixels, dim)
        self.position = nn.Parameter(torch.randn(1, patches, dim) * 0.02)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))

        def layer():
            return nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)

        self.encoder, self.decoder = layer(), layer()
        self.head = nn.Linear(dim, pixels)

    def forward(self, patches, keep):
        n, p, _ = patches.shape
        order = torch.rand(n, p).argsort(1)
        restore = order.argsort(1)
        x = self.embed(patches) + self.position
        kept = torch.gather(x, 1, order[:, :keep, None].expand(-1, -1, x.shape[2]))
        z = self.encoder(kept)
        full = torch.cat([z, self.mask_token.expand(n, p - keep, -1)], 1)
        full = torch.gather(full, 1, restore[..., None].expand(-1, -1, x.shape[2])) + self.position
        mask = torch.ones(n, p)
        mask[:, :keep] = 0
        return self.head(self.decoder(full)), torch.gather(mask, 1, restore)


torch.manual_seed(0)
base = torch.randn(6, 12, 12).cumsum(1).cumsum(2) / 6
images = base[torch.randint(0, 6, (256,))] + 0.05 * torch.randn(256, 12, 12)
patches = images.unfold(1, 3, 3).unfold(2, 3, 3).reshape(256, 16, 9)
model = MAE()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
for epoch in range(6):
    for batch in patches[torch.randperm(256)].split(32):
        pred, mask = model(batch, keep=4)
        loss = (((pred - batch) ** 2).mean(-1) * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
