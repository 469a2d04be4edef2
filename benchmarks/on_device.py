"""Chain, figures and cost of the controlled problem on an accelerator, as one table.

    python benchmarks/on_device.py [--device cuda] [--write]

The figures are those of the CPU: another device may move their last digits, so each is shown with its relative
difference, and fails beyond one part in ten thousand. First divergences must be the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from ledger_cost import keep, large_models, many_tensors
from torch.nn import functional

from weaklink.collector import LearningChain, TrainingSystem, learning_ledger

REPLAYS = Path(__file__).resolve().parents[1] / "replays"
TOLERANCE = 1e-4
# First divergence by the ledger on the full batch, or the row that is suspected.
DIVERGENCES = {
    "healthy": None,
    "stale_head": "OWNERSHIP/owned",
    "detached_hidden": "DEPENDENCY/reached",
    "shuffled_pairs": "TASK/rule",
    "softmax_before_loss": "OBJECTIVE/fed",
    "lr_1e4": "UPDATE/scale",
    "dead_first_layer": "GRADIENT/nonzero",
    "frozen_backbone": None,
}


def system(name: str) -> TrainingSystem:
    """The system that a replay's factory builds."""
    path = REPLAYS / name / "train.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built: TrainingSystem = module.build()
    return built


def moved(built: TrainingSystem, device: str) -> LearningChain:
    """The ledger of that system, moved to the device: in place, so that its optimizer holds what it held."""
    held = [p for one in built.optimizers for group in one.param_groups for p in group["params"]]
    for tensor in {id(t): t for t in [*built.model.parameters(), *built.model.buffers(), *held]}.values():
        tensor.data = tensor.data.to(device)
    inputs, targets = built.inputs.to(device), built.targets.to(device)
    return learning_ledger(
        built.model, built.optimizer, inputs, targets, built.loss_fn, built.num_classes, built.rule, built.expected
    )


def chains(device: str) -> Iterator[tuple[str, bool]]:
    """One line a replay: its first divergence on the device, and whether it is the one it should be."""
    for name, expected in DIVERGENCES.items():
        chain = moved(system(name), device)
        found = chain.first_divergence or next(iter(chain.suspected), None)
        yield f"| {name} | {expected or 'none'} | {found or 'none'} |", found == expected


def figures(device: str) -> Iterator[tuple[str, bool]]:
    """One line a figure: on the CPU, on the device, and their relative difference."""
    wanted: tuple[tuple[str, str, Callable[[LearningChain], Any]], ...] = (
        ("healthy", "loss", lambda chain: chain.row("OBJECTIVE/loss").values["first"]),
        ("healthy", "gradient norm", lambda chain: chain.row("GRADIENT/norm").values["norm"]),
        ("healthy", "largest delta", lambda chain: chain.row("UPDATE/delta").values["largest"]),
        ("stale_head", "loss", lambda chain: chain.row("OBJECTIVE/loss").values["first"]),
        ("softmax_before_loss", "gradient norm", lambda chain: chain.row("GRADIENT/norm").values["norm"]),
        ("lr_1e4", "delta / parameter norm", lambda chain: chain.row("UPDATE/scale").values["ratio"]),
    )
    for name, label, read in wanted:
        here, there = float(read(moved(system(name), "cpu"))), float(read(moved(system(name), device)))
        difference = abs(there - here) / abs(here)
        yield f"| {name}: {label} | {here:.6g} | {there:.6g} | {difference:.1e} |", difference <= TOLERANCE


def main() -> None:
    """Measure, print, with --write keep the table in RESULTS.md; exits with 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no CUDA device here; name another one with --device")
    functional.softmax(torch.ones(2, device=given.device), dim=0)  # wake the device before anything is timed
    found, shown = list(chains(given.device)), list(figures(given.device))
    where = given.device if given.device == "cpu" else torch.cuda.get_device_name()
    lines = [
        f"torch {torch.__version__}, Python {platform.python_version()}, {where}.",
        "",
        "| replay | first divergence on the CPU | there |",
        "| --- | --- | --- |",
        *(line for line, _ in found),
        "",
        "| figure | CPU | there | relative difference |",
        "| --- | --- | --- | --- |",
        *(line for line, _ in shown),
        "",
        *large_models(given.rounds, given.device),
        "",
        *many_tensors(given.rounds, given.device),
    ]
    text = "\n".join(lines)
    print(text)
    if given.write:
        keep(text, "on_device", "## On an accelerator")
    sys.exit(0 if all(right for _, right in [*found, *shown]) else 1)


if __name__ == "__main__":
    main()
