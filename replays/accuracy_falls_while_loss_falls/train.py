"""Train a small classifier on one batch, by plain gradient descent in small steps.

Run it and accuracy rises to 0.7773, then falls to 0.6680, while the loss falls and the mean margin grows all along.
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
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def accuracy_and_margin(scores: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """Share of right answers, and by how much the right class leads the wrong one on average."""
    right, wrong = scores.gather(1, y[:, None]), scores.gather(1, 1 - y[:, None])
    return (scores.argmax(dim=1) == y).float().mean().item(), (right - wrong).mean().item()


def build() -> object:
    """The same system for `weaklink diagnose replays/accuracy_falls_while_loss_falls/train.py:build`."""
    from weaklink.collector import TrainingSystem

    x, y = load_batch()
    model, optimizer = set_up()
    return TrainingSystem(
        model=model,
        optimizer=optimizer,
        inputs=x,
        targets=y,
        task="input: a point of the plane; target: 1 where x0 + 0.75 * x1 > 0",
        steps=41,
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = load_batch()
    for step in range(41):
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        if step in (0, 5, 10, 20, 30, 40):
            right, margin = accuracy_and_margin(scores.detach(), y)
            print(f"step {step:2d}  loss {loss.item():.5f}  accuracy {right:.4f}  mean margin {margin:+.5f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(*set_up())
