"""Learn an embedding that keeps distances. Some pairs are one row twice: their distance is 0, and the root of 0 has no
derivative.
"""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 4, generator=generator)
    one, other = torch.randint(64, (2, 256), generator=generator)
    wanted = (x[one] - x[other]).norm(dim=1)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(40):
        optimizer.zero_grad()
        squared = (model(x[one]) - model(x[other])).pow(2).sum(dim=1)
        loss = (torch.sqrt(squared) - wanted).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:2d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
