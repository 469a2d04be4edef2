"""Train a small classifier on one batch by plain gradient descent.

Run it and the loss is 0.69 at first, 1e26 two steps later, and nan from then on. Nothing raises.
"""

import torch
from torch import nn
from torch.nn import functional as F


def make_split(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes separated by the line x0 + 0.75 * x1 = 0."""
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] + 0.75 * x[:, 1] > 0).long()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


def load_batch() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = make_split(2048, seed=0)
    return x[:256], y[:256]


def set_up() -> tuple[Classifier, torch.optim.Optimizer]:
    torch.manual_seed(42)
    model = Classifier()
    return model, torch.optim.SGD(model.parameters(), lr=1e4)


def build() -> object:
    """The same system for `weaklink diagnose replays/lr_1e4/train.py:build`."""
    from weaklink.collector import TrainingSystem

    x, y = load_batch()
    model, optimizer = set_up()
    return TrainingSystem(
        model=model,
        optimizer=optimizer,
        inputs=x,
        targets=y,
        task="input: a point of the plane; target: 1 where x0 + 0.75 * x1 > 0",
        steps=10,
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = load_batch()
    for step in range(10):
        loss = F.cross_entropy(model(x), y)
        print(f"step {step}  loss {loss.item():.4e}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(*set_up())
