"""Fit a small regression by plain gradient descent, with a rate just too large: the loss grows and stays finite."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(128, 4, generator=torch.Generator().manual_seed(1))
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.1)
    for step in range(40):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:2d}  loss {loss.item():.4e}")


if __name__ == "__main__":
    main()
