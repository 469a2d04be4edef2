"""What the one-step ledger costs, against a training step of the same model, side by side.

    python benchmarks/ledger_cost.py [--rounds 7] [--device cpu] [--write]

Three questions. On models of ten million parameters and more: the ledger against one training step (the limit is 3).
From 10 to 10,000 parameter tensors: does the cost grow no faster than their number? And its measuring part (norms of
gradients and parameters, movement, the four states) against the same facts taken tensor by tensor with
`.norm().item()`: at least 3 times faster. Every round takes both sides, one after the other, so that a machine whose
speed drifts shifts them together; the ratio is taken round by round, and its median is what counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector import learning_ledger
from weaklink.collector.tensors import movements, norms, zeros_by_norm

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
COUNTS = (10, 100, 1_000, 10_000)


class Perceptron(nn.Sequential):
    """Linear layers of 1024 units: 10.5 million parameters with ten of them."""

    def __init__(self, layers: int) -> None:
        hidden = [part for _ in range(layers) for part in (nn.Linear(1024, 1024), nn.ReLU())]
        super().__init__(*hidden, nn.Linear(1024, 10))


class Many(nn.Module):
    """As many small parameter tensors as asked for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(16)) for _ in range(count)])
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(x + torch.stack(list(self.weights)).mean(dim=0))
        return scores


class System:
    """A model with its optimizer and one batch on a device, after two steps."""

    def __init__(self, model: nn.Module, x: Tensor, classes: int, device: str) -> None:
        self.device = device
        self.model = model.to(device)
        self.x = x.to(device)
        self.y = torch.randint(0, classes, (len(x),), device=device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        for _ in range(2):
            self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()

    def ledger(self) -> None:
        learning_ledger(self.model, self.optimizer, self.x, self.y)

    def sections(self) -> Callable[[], None]:
        """The ledger's measuring part."""
        gradients, pairs = self._measured()

        def measure() -> None:
            zeros_by_norm(gradients, norms(gradients))
            movements(pairs)

        return measure

    def sections_one_by_one(self) -> Callable[[], None]:
        """The same facts, each brought to the host by itself: norm, zero or not, finite or not, moved or not."""
        gradients, pairs = self._measured()

        def measure() -> None:
            for gradient in gradients:
                gradient.norm().item()
                (gradient == 0).all().item()
                torch.isfinite(gradient).all().item()
            for now, before in pairs:
                before.norm().item()
                (now - before).norm().item()
                (now != before).any().item()

        return measure

    def _measured(self) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(self.x), self.y).backward()
        before = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer.step()
        live = list(self.model.parameters())
        gradients = [p.grad for p in live if p.grad is not None]
        return gradients, [(p.detach(), b) for p, b in zip(live, before, strict=True)]


def seconds(function: Callable[[], None], device: str) -> float:
    """Wall time of one call, waiting for the device."""
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def side_by_side(
    first: Callable[[], None], second: Callable[[], None], rounds: int, device: str
) -> tuple[float, float, float]:
    """Median seconds of both, and the median of their ratios (second to first), round by round."""
    first(), second()
    pairs = [(seconds(first, device), seconds(second, device)) for _ in range(rounds)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(b / a for a, b in pairs),
    )


def large_models(rounds: int, device: str) -> list[str]:
    """The ledger against a training step, on models of ten million parameters and more."""
    head = "| parameters | batch | training step, ms | ledger, ms | ratio (limit 3) |"
    lines = [head, "| --- | --- | --- | --- | --- |"]
    for layers, batch in ((10, 64), (10, 256), (30, 256)):
        torch.manual_seed(0)
        system = System(Perceptron(layers), torch.randn(batch, 1024), 10, device)
        step, ledger, ratio = side_by_side(system.step, system.ledger, rounds, device)
        count = sum(p.numel() for p in system.model.parameters())
        lines.append(f"| {count / 1e6:.1f} M | {batch} | {step * 1e3:.1f} | {ledger * 1e3:.1f} | {ratio:.2f} |")
    return lines


def many_tensors(rounds: int, device: str) -> list[str]:
    """Growth with the number of parameter tensors, and the measuring part against one transfer a tensor."""
    head = "| tensors | training step, ms | ledger, ms | us a tensor | measuring, ms | tensor by tensor, ms | ratio |"
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- |"]
    for count in COUNTS:
        torch.manual_seed(0)
        system = System(Many(count - 2), torch.randn(16, 16), 2, device)
        step, ledger, _ = side_by_side(system.step, system.ledger, rounds, device)
        fast, slow, ratio = side_by_side(system.sections(), system.sections_one_by_one(), rounds, device)
        times = f"{step * 1e3:.2f} | {ledger * 1e3:.1f} | {ledger / count * 1e6:.0f}"
        lines.append(f"| {count} | {times} | {fast * 1e3:.2f} | {slow * 1e3:.2f} | {ratio:.1f} |")
    return lines


def main() -> None:
    """Measure, print, and with --write keep the table in RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    where = torch.cuda.get_device_name() if given.device != "cpu" else f"{os.cpu_count()} cores"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    tables = [*large_models(given.rounds, given.device), "", *many_tensors(given.rounds, given.device)]
    text = "\n".join([f"`learning_ledger`, {given.rounds} rounds, {versions}, {where}.", "", *tables])
    print(text)
    if given.write:
        keep(text, "ledger_cost", "## Cost of a ledger")


def keep(text: str, name: str, heading: str) -> None:
    """Replace the part of RESULTS.md of that name, or append it under the heading."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    part = f"{start}\n\n{text}\n\n{end}"
    old = RESULTS.read_text(encoding="utf-8")
    before, found, rest = old.partition(start)
    after = rest.partition(end)[2]
    new = f"{before}{part}{after}" if found else f"{old.rstrip()}\n\n{heading}\n\n{part}\n"
    RESULTS.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
