"""Can the training system fit a tiny fixed batch? The real optimizer against plain SGD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.declared import Fit
from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import (
    Loop,
    LossFn,
    PlainSgd,
    as_list,
    at_least_one,
    keeping,
    to_host,
    trainable,
    why_not_undoable,
)
from weaklink.collector.step import rows_of
from weaklink.collector.tensors import mapped


@dataclass(frozen=True)
class TinyBatch:
    """The fits. `real` is None where the real optimizer could not be undone; `refused` says why. Iterates over fits."""

    steps: int
    rows: int | None
    real: Fit | None
    fresh: Fit
    refused: str | None = None

    def __iter__(self) -> Iterator[Fit]:
        return iter([self.fresh] if self.real is None else [self.real, self.fresh])

    def __str__(self) -> str:
        return self.show()

    def show(self, further: Sequence[Fit] = ()) -> str:
        """One line a fit, with `further` ones below."""
        size = "the whole batch" if self.rows is None else f"{self.rows} rows"
        lines = [
            (f.name, f"{f.first:.5f}", f"{f.last:.5f}", "-" if f.accuracy is None else f"{f.accuracy:.4f}")
            for f in [*self, *further]
        ]
        text = table(f"{size}, {self.steps} steps", ("optimizer", "first loss", "last loss", "accuracy"), lines)
        return text if self.refused is None else f"{text}\nreal optimizer not run: {self.refused}"


def tiny_batch(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    inputs: Any,
    targets: Any,
    loss_fn: LossFn,
    steps: int = 501,
    rows: int | None = None,
    lr: float = 0.5,
) -> TinyBatch:
    """Train on one small batch, from the present state: once with the real optimizer, once with fresh plain SGD.

    Where plain SGD fits the batch and the real optimizer does not, the fault lies with the optimizer or with what it
    holds. A fit proves that gradients arrive and parameters move; about the task it proves nothing, random targets are
    memorized as well.

    Args:
        model: Trained in the mode that it is in.
        optimizer: The real one, or several; used in place and undone.
        inputs: The batch.
        targets: Of any kind that `loss_fn` takes.
        loss_fn: `loss_fn(outputs, targets)` gives the scalar to minimise.
        steps: Of each fit.
        rows: Take only so many of the batch's first rows.
        lr: Rate of plain SGD, which trains every parameter of the model (and of the loss) that requires a gradient.

    Raises:
        ProbeError: Fewer than one step.
    """
    at_least_one(steps, "steps")
    inputs, targets = first_rows(inputs, targets, rows)
    optimizers = as_list(optimizer)
    refused = why_not_undoable(optimizers)
    real = None
    if refused is None:
        with keeping(model, loss_fn, inputs, targets, optimizers):
            real = fit(real_name(optimizers), Loop(model, inputs, targets, loss_fn, optimizers), targets, steps)
    fresh = fit_fresh(model, inputs, targets, loss_fn, steps, lr)
    return TinyBatch(steps, rows_of(inputs), real, fresh, refused)


def fit_fresh(model: nn.Module, inputs: Any, targets: Any, loss_fn: LossFn, steps: int, lr: float) -> Fit:
    """The fit of plain SGD, undone."""
    with keeping(model, loss_fn, inputs, targets):
        sgd = PlainSgd(trainable(model, loss_fn).values(), lr)
        return fit(f"fresh SGD lr {lr:g}", Loop(model, inputs, targets, loss_fn, [sgd]), targets, steps)


def fit(name: str, loop: Loop, targets: Any, steps: int) -> Fit:
    """Train for `steps` steps; nothing is undone here."""
    outputs, loss = loop.backward()
    first = loss
    for _ in range(steps):
        loop.step()
        outputs, loss = loop.backward()
    correct = accuracy(outputs, targets)
    begun, ended, *share = to_host([first, loss, *([] if correct is None else [correct])])
    return Fit(name, begun, ended, share[0] if share else None)


def accuracy(outputs: Any, targets: Any) -> Tensor | None:
    """Share of targets that are the index of the largest output along dimension 1; None where they are no indices.

    Negative targets, ignored by torch's losses, are left out.
    """
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)) or outputs.dim() < 2:
        return None
    if targets.dtype == torch.bool or targets.is_floating_point() or targets.is_complex():
        return None
    if targets.shape != outputs.shape[:1] + outputs.shape[2:]:
        return None
    counted = targets >= 0
    return (outputs.detach().argmax(1) == targets)[counted].float().mean()


def first_rows(inputs: Any, targets: Any, rows: int | None) -> tuple[Any, Any]:
    """The first `rows` rows of a batch: of every tensor that is as long as the batch.

    The whole batch where the targets are not as long as the inputs (flattened tokens): they could not be cut alike.
    """
    length = rows_of(inputs)
    if rows is None or length is None or rows >= length or rows_of(targets) != length:
        return inputs, targets
    return mapped(inputs, lambda t: _cut(t, rows, length)), mapped(targets, lambda t: _cut(t, rows, length))


def _cut(tensor: Tensor, rows: int, length: int) -> Tensor:
    # A leaf of its own: its gradient must not flow into the user's batch.
    whole = not tensor.dim() or len(tensor) != length
    return tensor if whole else tensor[:rows].detach().requires_grad_(tensor.requires_grad)


def real_name(optimizers: Sequence[Optimizer]) -> str:
    """The kinds of the optimizers, several joined by a plus."""
    return " + ".join(type(optimizer).__name__ for optimizer in optimizers)
