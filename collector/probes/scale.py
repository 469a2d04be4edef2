"""Do the steps outgrow the parameters? Loss, gradient, parameters and movement, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import (
    Loop,
    LossFn,
    as_list,
    at_least_one,
    keeping,
    must_be_undoable,
    to_host,
    trainable,
)
from weaklink.collector.tensors import dense


@dataclass(frozen=True)
class ScaleStep:
    """One step. Norms are Euclidean, over all trainable parameters.

    They are taken in the parameters' own type, as gradient clipping takes them: one whose square is too large for that
    type is inf, although every entry is finite.
    """

    step: int
    loss: float
    gradient_norm: float
    parameter_norm: float
    delta_norm: float


@dataclass(frozen=True)
class UpdateScale:
    """The steps, from the present state on."""

    steps: tuple[ScaleStep, ...]

    def __str__(self) -> str:
        rows = [
            (str(s.step), *(f"{v:.4e}" for v in (s.loss, s.gradient_norm, s.parameter_norm, s.delta_norm)))
            for s in self.steps
        ]
        return table("update scale", ("step", "loss", "gradient norm", "parameter norm before", "delta norm"), rows)


def update_scale(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    inputs: Any,
    targets: Any,
    loss_fn: LossFn,
    steps: int = 4,
) -> UpdateScale:
    """Take a few steps with the real optimizer and read the columns side by side; undone afterwards.

    A step much longer than the parameters it moves comes before the loss that explodes: the cause stands one line above
    its effect. No threshold is applied.

    Raises:
        ProbeError: The optimizer's step cannot be undone, or fewer than one step.
    """
    at_least_one(steps, "steps")
    optimizers = as_list(optimizer)
    must_be_undoable(optimizers)
    found = []
    with keeping(model, loss_fn, inputs, targets, optimizers):
        parameters = list(trainable(model, loss_fn).values())
        loop = Loop(model, inputs, targets, loss_fn, optimizers)
        for step in range(steps):
            _, loss = loop.backward()
            gradient = _norm([p.grad for p in parameters if p.grad is not None])
            before = [p.detach().clone() for p in parameters]
            loop.step()
            delta = _norm([p.detach() - b for p, b in zip(parameters, before, strict=True)])
            found.append(ScaleStep(step, *to_host([loss, gradient, _norm(before), delta])))
    return UpdateScale(tuple(found))


def _norm(tensors: list[Tensor]) -> Tensor:
    lengths = [torch.linalg.vector_norm(dense(tensor)) for tensor in tensors]
    if not lengths:
        return torch.zeros(())
    total: Tensor = torch.linalg.vector_norm(torch.stack([length.to(lengths[0].device) for length in lengths]))
    return total
