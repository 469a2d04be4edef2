"""Whether the rows of the inputs are nearly one constant row: what a model makes of them when they are standardised.

Asked only where every column lies farther from zero than its values lie apart. Then, in copies of the run as it is, the
model is trained on for a few steps with the rows as they are and with each column standardised, and held against
batches that neither saw. A model that normalises its inputs itself comes equally far with both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.looking.batches import TrainingBatch
from weaklink.collector.looking.objective import Objective
from weaklink.collector.preserve import preserved
from weaklink.collector.watching.pairs import Chunk

NAME = "scale"
STEPS = 100
# So many unseen batches must all agree: by chance one in 64.
HELD_BATCHES = 6
_ROUNDING = 1e-12


def is_table(inputs: Sequence[Tensor]) -> bool:
    """Whether every input is a table of finite numbers, one row an example, in which some column varies."""
    tables = [tensor for tensor in inputs if tensor.is_floating_point() and tensor.dim() == 2 and tensor.shape[0] > 1]
    if len(tables) < len(inputs) or not all(bool(torch.isfinite(table).all()) for table in tables):
        return False
    return any(bool((table.amax(dim=0) > table.amin(dim=0)).any()) for table in tables)


def is_offset(inputs: Sequence[Tensor]) -> bool:
    """Whether every column that varies lies farther from zero, in its mean, than its values lie apart."""
    tables = [tensor.double() for tensor in inputs if tensor.is_floating_point() and tensor.dim() == 2]
    if len(tables) < len(inputs) or not all(bool(torch.isfinite(table).all()) for table in tables):
        return False
    apart = torch.cat([table.amax(dim=0) - table.amin(dim=0) for table in tables])
    away = torch.cat([table.mean(dim=0).abs() for table in tables])
    varies = apart > 0
    return bool(varies.any()) and bool((away[varies] > apart[varies]).all())


def look_at_scale(
    model: nn.Module, optimizers: Sequence[Optimizer], chunks: Sequence[Chunk], objective: Objective
) -> dict[str, Any]:
    """Train on with the rows as they are, and standardised.

    Returns:
        `plain`, `standardised`: the loss of each unseen batch after `STEPS` steps; `constant`: what the best constant
        output reaches there.

    Raises:
        ValueError: Too few whole batches, or no optimizer that steps without a closure holds the model.
    """
    own = {id(parameter) for parameter in model.parameters()}
    held_by = [o for o in optimizers if any(id(p) in own for group in o.param_groups for p in group["params"])]
    if not held_by or any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in held_by):
        raise ValueError("no optimizer that steps without a closure holds the model")
    rows = objective.shape[0]
    whole = [chunk for chunk in chunks if chunk.rows == rows and chunk.target is not None]
    if len(whole) < 2 * HELD_BATCHES:
        raise ValueError(f"takes {2 * HELD_BATCHES} whole batches")
    shown, unseen = whole[::2], whole[1::2][:HELD_BATCHES]
    statistics = [_moments([chunk.inputs[place] for chunk in shown]) for place in range(len(shown[0].inputs))]
    device = next(model.parameters()).device
    found: dict[str, Any] = {}
    for name in ("plain", "standardised"):
        moments = statistics if name == "standardised" else [(0.0, 1.0)] * len(statistics)
        batches, held = ([_batch(c, objective, moments, device) for c in part] for part in (shown, unseen))
        with preserved([model], held_by):
            for step in range(STEPS):
                _step(model, held_by, batches[step % len(batches)])
            model.eval()
            with torch.no_grad():
                found[name] = [float(batch.loss(model)) for batch in held]
    found["constant"] = [_known(batch).constant() for batch in held]
    return found


def _moments(parts: list[Tensor]) -> tuple[Any, Any]:
    values = torch.cat(parts).double()
    spread = values.std(dim=0, correction=0)
    return values.mean(dim=0), torch.where(spread > _ROUNDING * values.abs().amax(dim=0), spread, 1.0)


def _batch(
    chunk: Chunk, objective: Objective, moments: Sequence[tuple[Any, Any]], device: torch.device
) -> TrainingBatch:
    assert chunk.target is not None
    args = tuple(
        ((tensor.double() - mean) / spread).float().to(device)
        for tensor, (mean, spread) in zip(chunk.inputs, moments, strict=True)
    )
    targets = chunk.target.reshape(objective.targets.shape).to(device, objective.targets.dtype)
    return TrainingBatch(args, {}, replace(objective, targets=targets))


def _known(batch: TrainingBatch) -> Objective:
    assert batch.objective is not None
    return batch.objective


def _step(model: nn.Module, optimizers: Sequence[Optimizer], batch: TrainingBatch) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    with torch.enable_grad():
        batch.loss(model).backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()
