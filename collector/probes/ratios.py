"""How far the real optimizer goes for the gradient it gets: movement against rate times gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import Loop, LossFn, as_list, keeping, must_be_undoable, trainable
from weaklink.collector.tensors import norms
from weaklink.collector.watching.optimizers import rate


@dataclass(frozen=True)
class UpdateRatio:
    """One parameter's next step.

    Attributes:
        name: The parameter's.
        lr: Rate of the group that holds it; None where no optimizer does.
        gradient_norm: Of what backward left; None where there is no gradient.
        delta_norm: Of the movement.
        ratio: delta norm / (lr * gradient norm); 1 for plain SGD. None where that is not defined.
    """

    name: str
    lr: float | None
    gradient_norm: float | None
    delta_norm: float
    ratio: float | None


@dataclass(frozen=True)
class UpdateRatios:
    """One entry a trainable parameter."""

    parameters: tuple[UpdateRatio, ...]

    def __str__(self) -> str:
        rows = [
            (
                p.name,
                "in no optimizer" if p.lr is None else f"{p.lr:g}",
                "none" if p.gradient_norm is None else f"{p.gradient_norm:.4e}",
                f"{p.delta_norm:.4e}",
                "-" if p.ratio is None else f"{p.ratio:.3f}",
            )
            for p in self.parameters
        ]
        return table("next step", ("parameter", "lr", "gradient norm", "delta norm", "delta / (lr * gradient)"), rows)


def update_ratios(
    model: nn.Module, optimizer: Optimizer | Sequence[Optimizer], inputs: Any, targets: Any, loss_fn: LossFn
) -> UpdateRatios:
    """Take the real optimizer's next step and compare it with plain SGD's at the same rate; undone afterwards.

    An adaptive optimizer goes far for a small gradient, ten or two hundred times lr * gradient in its first step: a
    rate that suits it says nothing about SGD. A ratio of zero beside a gradient says that nothing moved.

    Raises:
        ProbeError: The optimizer's step cannot be undone.
    """
    optimizers = as_list(optimizer)
    must_be_undoable(optimizers)
    with keeping(model, loss_fn, inputs, targets, optimizers) as kept:
        named = trainable(model, loss_fn)
        rates = {id(p): rate(group) for o in optimizers for group in o.param_groups for p in group["params"]}
        loop = Loop(model, inputs, targets, loss_fn, optimizers)
        loop.backward()
        received = {name: p.grad for name, p in named.items() if p.grad is not None}
        gradients = dict(zip(received, norms(list(received.values())), strict=True))
        loop.step()
        deltas = norms([p.detach() - kept.copies[id(p)].to(p.device) for p in named.values()])
    return UpdateRatios(
        tuple(
            _ratio(name, rates.get(id(p)), gradients.get(name), delta)
            for (name, p), delta in zip(named.items(), deltas, strict=True)
        )
    )


def _ratio(name: str, lr: float | None, gradient: float | None, delta: float) -> UpdateRatio:
    product = (lr or 0.0) * (gradient or 0.0)
    return UpdateRatio(name, lr, gradient, delta, delta / product if product else None)
