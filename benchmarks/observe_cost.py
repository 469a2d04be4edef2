"""What observing costs a training step: the same loop plain and watched, in turns, in one process.

    python benchmarks/observe_cost.py [--rounds 5] [--steps 12] [--write]

A transformer of more than ten million parameters. A step that is not sampled may take 1.05 times a plain one, a sampled
one twice as long. The ratio is taken round by round, so that a machine whose speed drifts shifts both together.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from weaklink.collector.watching.sampling import DENSE_STEPS, is_sampled
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.watcher import Watcher

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
START, END = "<!-- observe_cost -->", "<!-- /observe_cost -->"
WIDTH, LAYERS, VOCABULARY, BATCH, LENGTH = 384, 5, 4000, 8, 64


class Model(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores (batch, length, vocabulary) of token ids (batch, length)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        found: Tensor = self.head(self.blocks(self.tokens(tokens), mask=mask, is_causal=True))
        return found


def step_seconds(steps: int, watched: bool) -> tuple[dict[int, float], int]:
    """Seconds of each step, from 1, and the number of parameters."""
    torch.manual_seed(0)
    watcher = Watcher(UserCode(ROOT / "benchmarks")) if watched else None
    if watcher is not None:
        watcher.install()
    try:
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        taken: dict[int, float] = {}
        for step in range(1, steps + 1):
            tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
            start = time.perf_counter()
            optimizer.zero_grad()
            scores = model(tokens[:, :-1])
            nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            taken[step] = time.perf_counter() - start
        return taken, sum(parameter.numel() for parameter in model.parameters())
    finally:
        if watcher is not None:
            watcher.remove()


def one_round(steps: int) -> tuple[float, float, int]:
    """Ratios watched / plain of an unsampled and of a sampled step (medians within the round), and the size."""
    # The first step of a process allocates: neither side is measured by it.
    plain, count = step_seconds(steps, watched=False)
    seen, _ = step_seconds(steps, watched=True)
    ratios = {step: seen[step] / plain[step] for step in range(2, steps + 1)}
    unsampled = [ratio for step, ratio in ratios.items() if step > DENSE_STEPS and not is_sampled(step)]
    sampled = [ratio for step, ratio in ratios.items() if is_sampled(step)]
    return statistics.median(unsampled), statistics.median(sampled), count


def main() -> None:
    """Measure, print, and write the table where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    step_seconds(3, watched=True)  # imports, allocator, thread pool
    rounds = [one_round(options.steps) for _ in range(options.rounds)]
    text = table(rounds)
    print(text)
    if options.write:
        whole = RESULTS.read_text(encoding="utf-8")
        before, _, rest = whole.partition(START)
        RESULTS.write_text(f"{before}{START}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def table(rounds: list[tuple[float, float, int]]) -> str:
    """The rounds as Markdown."""
    lines = [
        f"A transformer of {rounds[0][2] / 1e6:.1f} M parameters, {len(rounds)} rounds, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads.",
        "",
        "| watched / plain | min | median | max | limit |",
        "| --- | --- | --- | --- | --- |",
    ]
    for label, position, limit in (("a step that is not sampled", 0, 1.05), ("a sampled step", 1, 2.0)):
        values = [float(found[position]) for found in rounds]
        cells = [f"{value:.2f}" for value in (min(values), statistics.median(values), max(values), limit)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
