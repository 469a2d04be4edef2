"""Fit a noisy regression in batches of four, at a rate where every step undoes the one before: it never settles."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2000, 8, generator=generator)
    y = 0.3 * x[:, :1] + torch.randn(2000, 1, generator=generator)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15)
    for step in range(500):
        rows = torch.randint(2000, (4,))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
