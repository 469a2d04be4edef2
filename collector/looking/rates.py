"""Whether one pinned batch is fitted at a rate that is orders of magnitude away from the run's own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from weaklink.collector.looking.batches import TrainingBatch, floating, fresh
from weaklink.collector.preserve import preserved
from weaklink.collector.watching.optimizers import rate

STEPS = 100
SECONDS = 8.0
ROWS = 32
# Against the rate that was declared: a rate that is wrong by a unit is wrong by orders of magnitude.
FACTORS = (1.0, 1e2, 1e3, 1e4, 1e5)


def look_at_rates(model: nn.Module, optimizers: Sequence[Optimizer], batch: TrainingBatch) -> dict[str, Any]:
    """Fit the batch with the run's own optimizers, at its highest declared rate and at multiples of it.

    Returns:
        `declared`: the highest rate that the groups know of; `fits`: for each multiple tried, as text, the step at
        which the loss lay below that of the best constant output for good, or None. It ends at the first that fits.

    Raises:
        ValueError: The objective is not recognised, no optimizer holds the model, or it took too long.
    """
    own = [optimizer for optimizer in optimizers if _holds(optimizer, model)]
    if batch.objective is None or not own or any(isinstance(o, torch.optim.LBFGS) for o in own):
        raise ValueError("the loss is none that is recognised, or no optimizer that steps by itself holds the model")
    pinned = batch.first_rows(ROWS)
    until = time.process_time() + SECONDS
    fits: dict[str, int | None] = {}
    for factor in FACTORS:
        fits[f"{factor:g}"] = below = _fitted(model, own, pinned, factor, until)
        if below is not None:
            break
    declared = max(declared_rate(group) for optimizer in own for group in optimizer.param_groups)
    return {"declared": declared, "fits": fits, "steps": STEPS}


def _holds(optimizer: Optimizer, model: nn.Module) -> bool:
    own = {id(parameter) for parameter in model.parameters()}
    return any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"])


def declared_rate(group: dict[str, Any]) -> float:
    """The highest rate a group knows of: its own, what a schedule started from, what it is to peak at."""
    known = [rate({"lr": group.get(name, 0.0)}) for name in ("lr", "initial_lr", "max_lr")]
    return max((value for value in known if value == value), default=0.0)


def _fitted(
    model: nn.Module, optimizers: Sequence[Optimizer], batch: TrainingBatch, factor: float, until: float
) -> int | None:
    assert batch.objective is not None
    constant = batch.objective.constant()
    with preserved([model], optimizers):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * declared_rate(group)
        in_a_row = 0
        for step in range(1, STEPS + 1):
            in_a_row = in_a_row + 1 if _step(model, optimizers, batch, step) < constant else 0
            if in_a_row == STEPS // 10:
                return step
            if time.process_time() > until:
                raise ValueError(f"the fits of one batch took longer than {SECONDS:g} s")
    return None


def _step(model: nn.Module, optimizers: Sequence[Optimizer], batch: TrainingBatch, step: int) -> float:
    """One step; the loss before it."""
    assert batch.objective is not None
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    with torch.enable_grad():
        torch.manual_seed(step)
        loss = batch.objective.loss(floating(model(*fresh(batch.args), **fresh(batch.kwargs))))
        loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()
    return float(loss.detach())
