"""The first steps of a run once more: at its own rate, at smaller ones, and without a state that was loaded.

Asked only of a run that ended no better than it began, or whose optimizer did not begin afresh. The first batches are
shown again and again, from the parameters that the run started with; one thing is changed at a time.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.looking.batches import TrainingBatch, floating, fresh
from weaklink.collector.preserve import preserved

# Passes over the first batches, of which there are five: a hundred steps.
PASSES = 20
SECONDS = 12.0
SMALLER = (0.1, 0.01)
# Losses that a faithful repetition shares with the run, up to rounding.
TOLERANCE = 1e-3


@dataclass
class Beginning:
    """How a run began.

    Attributes:
        batches: What it was trained on at its first steps, one a step, and `losses` what came of them.
        initial: The model's parameters before the first step, by name.
        rates: The rates of the optimizer's groups at the first step.
        state: A copy of the optimizer's state before it, by position of the parameter; empty for a fresh one.
        unseen: Batches of later steps, by step, and the loss that the run had there: a measure that repeating the first
            ones does not improve by itself.
    """

    batches: list[TrainingBatch]
    losses: list[float]
    initial: dict[str, Tensor]
    rates: list[float]
    state: dict[int, dict[str, Any]]
    unseen: dict[int, tuple[TrainingBatch, float]]


def look_at_beginning(model: nn.Module, optimizer: Optimizer, beginning: Beginning) -> dict[str, Any]:
    """Take the first steps again, in the run's own order and in the reverse one.

    Returns:
        `constant`: what the best constant output reaches on these batches; `rate`: the highest at the first step;
        `arms`: by name, the mean loss of each pass, how many weights receive exactly zero throughout the last one, and
        by step the loss of a batch that the run saw at that step; `later`: the run's own losses there.
        Arms: `1`, `0.1`, `0.01` (factors of the rate), each with its reverse (`1 reversed`); `cleared`: without the
        state, where there was one.

    Raises:
        ValueError: Repeating the steps does not give the losses that the run had, or it took too long.
    """
    until = time.process_time() + SECONDS
    constant = sum(_constant(batch) for batch in beginning.batches) / len(beginning.batches)
    arms = {"1": _arm(model, optimizer, beginning, until)}
    if not _begins_alike(arms["1"]["losses"], beginning.losses):
        raise ValueError("the first steps taken again do not give the losses that the run had")
    arms["1 reversed"] = _arm(model, optimizer, beginning, until, backwards=True)
    if beginning.state:
        arms["cleared"] = _arm(model, optimizer, beginning, until, cleared=True)
    for factor in SMALLER:
        if any(fitted(arms[name], constant) for name in ("1", "1 reversed")):
            break
        for name, backwards in ((f"{factor:g}", False), (f"{factor:g} reversed", True)):
            arms[name] = _arm(model, optimizer, beginning, until, factor, backwards)
        if all(fitted(arms[name], constant) for name in (f"{factor:g}", f"{factor:g} reversed")):
            break
    later = {str(step): loss for step, (_, loss) in beginning.unseen.items()}
    return {"constant": constant, "rate": max(beginning.rates, default=0.0), "arms": arms, "later": later}


def fitted(arm: dict[str, Any], constant: float) -> bool:
    """Whether the last two passes have a lower loss than any constant output."""
    return all(loss < constant for loss in arm["passes"][-2:])


def _begins_alike(losses: Sequence[float], wanted: Sequence[float]) -> bool:
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in zip(losses, wanted, strict=False))


def _constant(batch: TrainingBatch) -> float:
    assert batch.objective is not None
    return batch.objective.constant()


def _arm(
    model: nn.Module,
    optimizer: Optimizer,
    beginning: Beginning,
    until: float,
    factor: float = 1.0,
    backwards: bool = False,
    cleared: bool = False,
) -> dict[str, Any]:
    """One repetition: mean loss of each pass, the first losses, and the weights without a gradient in the last pass."""
    batches = beginning.batches[::-1] if backwards else beginning.batches
    losses: list[float] = []
    unseen: dict[str, float] = {}
    with preserved([model], [optimizer]):
        _begin(model, optimizer, beginning, factor, cleared)
        dead = {name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.dim() > 1}
        weights = len(dead)
        for number in range(PASSES * len(batches)):
            if number + 1 in beginning.unseen:
                unseen[str(number + 1)] = _loss(model, beginning.unseen[number + 1][0])
            losses.append(_step(model, optimizer, batches[number % len(batches)], number))
            if number >= (PASSES - 1) * len(batches):
                dead &= {name for name, parameter in model.named_parameters() if _is_zero(parameter.grad)}
            if time.process_time() > until:
                raise ValueError(f"taking the first steps again took longer than {SECONDS:g} s")
    size = len(batches)
    passes = [sum(losses[start : start + size]) / size for start in range(0, len(losses), size)]
    return {"passes": passes, "losses": losses[:size], "dead": len(dead), "weights": weights, "unseen": unseen}


def _begin(model: nn.Module, optimizer: Optimizer, beginning: Beginning, factor: float, cleared: bool) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in beginning.initial:
                parameter.copy_(beginning.initial[name])
    optimizer.state.clear()
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not cleared:
        for position, state in beginning.state.items():
            optimizer.state[held[position]] = copy.deepcopy(state)
    for group, rate in zip(optimizer.param_groups, beginning.rates, strict=True):
        value = factor * rate
        group["lr"] = torch.tensor(value) if isinstance(group.get("lr"), Tensor) else value


def _step(model: nn.Module, optimizer: Optimizer, batch: TrainingBatch, number: int) -> float:
    """One step; the loss before it."""
    assert batch.objective is not None
    optimizer.zero_grad(set_to_none=True)
    with torch.enable_grad():
        torch.manual_seed(number)
        loss = batch.objective.loss(floating(model(*fresh(batch.args), **fresh(batch.kwargs))))
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def _loss(model: nn.Module, batch: TrainingBatch) -> float:
    """In the mode that the model trains in; normalisation's running statistics do not matter to a repetition."""
    with torch.no_grad():
        return float(batch.loss(model))


def _is_zero(gradient: Tensor | None) -> bool:
    return gradient is not None and gradient.layout == torch.strided and not bool(gradient.any())
