"""The controlled problem in process: the healthy system, and each fault as one change to it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def split(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(seed))
    return x, rule(x)


def rule(x: Tensor) -> Tensor:
    return (x[:, 0] + 0.75 * x[:, 1] > 0).long()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x))
        return scores


class Detached(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x).detach())
        return scores


class WithoutGradients(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.features(x)
        scores: Tensor = self.head(hidden)
        return scores


def batch() -> tuple[Tensor, Tensor]:
    """The first 256 rows of the training split."""
    x, y = split(2048, 0)
    return x[:256], y[:256]


def shuffled() -> tuple[Tensor, Tensor]:
    """All rows, inputs permuted, targets left."""
    x, y = split(2048, 0)
    return x[torch.randperm(2048, generator=torch.Generator().manual_seed(3))], y


def healthy(kind: type[Classifier] = Classifier) -> Classifier:
    torch.manual_seed(42)
    return kind()


def adamw(model: nn.Module, lr: float = 1e-2) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)


def stale_head(frozen: bool = True) -> tuple[Classifier, torch.optim.AdamW]:
    model = healthy()
    model.features.requires_grad_(not frozen)
    optimizer = adamw(model)
    torch.manual_seed(7)
    model.head = nn.Linear(32, 2)
    return model, optimizer


def dead_first_layer() -> Classifier:
    model = healthy()
    layer = model.features[0]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.bias.fill_(-100.0)
    return model
