"""Fit a small classifier with batch normalisation whose running statistics hardly follow: it fails in evaluation."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(512, 4, generator=generator) * 5 + 20
    y = (x[:, 0] > 20).long()
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16, momentum=0.0), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(8):
        model.train()
        for start in range(0, 384, 64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[start : start + 64]), y[start : start + 64])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x[384:]).argmax(dim=1) == y[384:]).float().mean().item()
        print(f"epoch {epoch}  loss {loss.item():.4f}  held-out accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
