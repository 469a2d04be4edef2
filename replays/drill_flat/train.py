"""Fit a small regression. The last layer is exchanged after the optimizer was built, and the loss stays where it is."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(128, 4, generator=torch.Generator().manual_seed(1))
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    model[0].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model[2] = nn.Linear(16, 1)  # a new task wants a new last layer
    for step in range(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:2d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
