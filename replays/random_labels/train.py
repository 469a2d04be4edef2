"""Fit a small classifier to 32 points whose labels are coin flips.

Run it and it fits all 32 of them: the loss falls from 0.69527 to 0.00026. There was nothing to learn.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


def load_batch() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(32, 2, generator=torch.Generator().manual_seed(0))
    return x, torch.randint(0, 2, (32,), generator=torch.Generator().manual_seed(11))


def set_up() -> tuple[Classifier, torch.optim.Optimizer]:
    torch.manual_seed(42)
    model = Classifier()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)


def build() -> object:
    """The same system for `weaklink diagnose replays/random_labels/train.py:build`."""
    from weaklink.collector import TrainingSystem

    x, y = load_batch()
    model, optimizer = set_up()
    return TrainingSystem(
        model=model,
        optimizer=optimizer,
        inputs=x,
        targets=y,
        task="input: a point of the plane; target: the flip of a coin",
        steps=501,
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = load_batch()
    for step in range(501):
        loss = F.cross_entropy(model(x), y)
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.5f}  accuracy {accuracy(model, x, y):.4f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(*set_up())
