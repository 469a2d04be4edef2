"""As in transformers: the model takes the labels and returns its loss; a collate function builds dictionaries."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 24, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 24))
        self.pos = nn.Parameter(torch.randn(1, 10, 24) * 0.02)
        self.layer = nn.TransformerEncoderLayer(24, 4, 48, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, pixel_values, labels=None):
        x = self.patch(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        logits = self.head(self.layer(x)[:, 0])
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return Output(loss, logits)


def collate(rows):
    return {"pixel_values": torch.stack([r[0] for r in rows]), "labels": torch.tensor([r[1] for r in rows])}


torch.manual_seed(0)
rows = []
for k in range(480):
    image = torch.randn(1, 12, 12)
    image[:, :, 4 * (k % 3) : 4 * (k % 3) + 4] += 1.0
    rows.append((image, k % 3))
model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 10, (64 - s) / 54))
accumulate = 2
for epoch in range(4):
    model.train()
    for step, batch in enumerate(DataLoader(rows[:384], batch_size=12, shuffle=True, collate_fn=collate)):
        loss = model(**batch).loss / accumulate
        loss.backward()
        if (step + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
    model.eval()
    with torch.no_grad():
        batch = collate(rows[384:])
        out = model(**batch)
    print(
        epoch,
        loss.item() * accumulate,
        out.loss.item(),
        (out.logits.argmax(-1) == batch["labels"]).float().mean().item(),
    )
