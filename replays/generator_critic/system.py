"""What all scripts of this folder share: two small models, their optimizers, and the data. Everything is float64."""

import torch
from torch import nn

RATE = 0.1
OPERATIONS = 3
ROWS = 8


class Generator(nn.Module):
    """Points of the plane from two numbers of noise."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(2, 2)

    def forward(self, noise):
        return self.output(noise)


class Critic(nn.Module):
    """One score a point: the higher, the more it is taken for a real one."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(2, 4)
        self.score = nn.Linear(4, 1)

    def forward(self, points):
        return self.score(torch.tanh(self.hidden(points)))


def build(seed):
    """The two models as this seed draws them."""
    torch.manual_seed(seed)
    return Generator().double(), Critic().double()


def batches(seed):
    """Noise and real points of each operation, [ROWS, 2] both."""
    draws = torch.Generator().manual_seed(1000 + seed)
    for _ in range(OPERATIONS):
        noise = torch.randn(ROWS, 2, generator=draws, dtype=torch.float64)
        real = torch.randn(ROWS, 2, generator=draws, dtype=torch.float64) * 0.5 + 1.0
        yield noise, real
