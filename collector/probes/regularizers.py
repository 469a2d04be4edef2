"""Can the system fit a tiny batch, and which regularizer keeps it from it? Each one removed alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn import functional
from torch.optim import Optimizer

from weaklink.collector.declared import Fit
from weaklink.collector.probes.loop import Loop, LossFn, PlainSgd, as_list, keeping, trainable
from weaklink.collector.probes.tiny import TinyBatch, first_rows, fit, real_name, tiny_batch

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass(frozen=True)
class Removal:
    """A fit without one regularizer; `removed` says what was set to zero."""

    regularizer: str
    removed: tuple[str, ...]
    fit: Fit


@dataclass(frozen=True)
class Capability:
    """The tiny batch as the system is, and without each regularizer that it has."""

    tiny: TinyBatch
    without: tuple[Removal, ...]

    def __str__(self) -> str:
        notes = [
            f"without {r.regularizer}: {', '.join(r.removed[:4])}{', ...' * (len(r.removed) > 4)}" for r in self.without
        ]
        return "\n".join([self.tiny.show([removal.fit for removal in self.without]), *notes])


def capability(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    inputs: Any,
    targets: Any,
    loss_fn: LossFn,
    steps: int = 501,
    rows: int | None = None,
    lr: float = 0.5,
) -> Capability:
    """`tiny_batch`, and the same fit with each regularizer removed alone; one that is not there is not run.

    Known are dropout that is in train mode, the optimizer's weight decay, and the label smoothing of torch's cross
    entropy. The fits without one use the real optimizer, or plain SGD where the real one cannot be undone; without
    label smoothing the loss is another one, and so is the least value it can reach.

    The arguments are those of `tiny_batch`.

    Raises:
        ProbeError: Fewer than one step.
    """
    tiny = tiny_batch(model, optimizer, inputs, targets, loss_fn, steps, rows, lr)
    inputs, targets = first_rows(inputs, targets, rows)
    optimizers: list[Any] = as_list(optimizer) if tiny.refused is None else []
    known: tuple[tuple[str, Callable[[], tuple[list[str], LossFn]]], ...] = (
        ("dropout", lambda: (_without_dropout(model), loss_fn)),
        ("weight decay", lambda: (_without_decay(optimizers), loss_fn)),
        ("label smoothing", lambda: _without_smoothing(loss_fn)),
    )
    removals = []
    for name, remove in known:
        with keeping(model, loss_fn, inputs, targets, optimizers):
            removed, loss = remove()
            if not removed:
                continue
            used = optimizers or [PlainSgd(trainable(model, loss_fn).values(), lr)]
            label = f"{real_name(optimizers) if optimizers else f'fresh SGD lr {lr:g}'} without {name}"
            found = fit(label, Loop(model, inputs, targets, loss, used), targets, steps)
        removals.append(Removal(name, tuple(removed), found))
    return Capability(tiny, tuple(removals))


def _without_dropout(model: nn.Module) -> list[str]:
    removed = []
    for name, module in model.named_modules():
        if not module.training:
            continue
        if isinstance(module, _DROPOUT) and module.p > 0:
            module.p = 0.0
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout > 0:
            module.dropout = 0.0
        else:
            continue
        removed.append(name or type(module).__name__)
    return removed


def _without_decay(optimizers: Sequence[Optimizer]) -> list[str]:
    removed = []
    for optimizer in optimizers:
        for number, group in enumerate(optimizer.param_groups):
            if group.get("weight_decay"):
                removed.append(f"{type(optimizer).__name__} group {number}: {float(group['weight_decay']):g}")
                group["weight_decay"] = 0.0
    return removed


def _without_smoothing(loss_fn: LossFn) -> tuple[list[str], LossFn]:
    if isinstance(loss_fn, nn.CrossEntropyLoss) and loss_fn.label_smoothing > 0:
        removed = [f"CrossEntropyLoss: {loss_fn.label_smoothing:g}"]
        loss_fn.label_smoothing = 0.0
        return removed, loss_fn
    if isinstance(loss_fn, functools.partial) and loss_fn.func is functional.cross_entropy:
        smoothing = loss_fn.keywords.get("label_smoothing", 0.0)
        if smoothing > 0:
            return [f"cross_entropy: {smoothing:g}"], functools.partial(loss_fn, label_smoothing=0.0)
    return [], loss_fn
