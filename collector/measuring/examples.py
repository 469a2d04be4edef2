"""The loss of each example of one step's batch, found in what the script itself computed: nothing is run again."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.close_up.operations import LOSSES, name_of
from weaklink.collector.looking.batches import floating
from weaklink.collector.looking.objective import Objective
from weaklink.collector.measuring.pinned import Step
from weaklink.collector.measuring.recorder import Entry, Recorder, needed
from weaklink.collector.step import rows_of
from weaklink.collector.tensors import tensors_in


@dataclass
class Examples:
    """One value an example, all on the host.

    Attributes:
        losses: (examples,), their mean is the loss, up to weights of classes.
        classes: (examples,) class indices; None where the targets are none that are known.
        correct: (examples,) whether the largest score is the target's; None where that has no meaning.
        rows: (examples,) which row of the batch an example belongs to.
        call: The model's call that they come from; None where none is known.
        what: The loss, in words.
    """

    losses: Tensor
    classes: Tensor | None
    correct: Tensor | None
    rows: Tensor
    call: Entry | None
    what: str


class NoExamples(Exception):
    """The loss does not tell its examples apart; says why."""


def examples_of(step: Step, recorder: Recorder) -> Examples:
    """Raises `NoExamples` where the loss is nothing that is known as a mean over examples."""
    with torch.no_grad():
        if step.objective is not None and step.entry is not None:
            return _of_objective(step.objective, step.entry)
        for loss in step.losses[:1]:
            if (known := _of_calls(needed(recorder, [loss]))) is not None:
                return known
    raise NoExamples("the loss is none of torch's own, and no mean or sum by hand over the rows of a model's output")


def _of_objective(objective: Objective, entry: Entry) -> Examples:
    scores = objective.scores([tensor.detach() for tensor in floating(entry.result)])
    return _examples(objective, scores, entry)


def _examples(objective: Objective, scores: Tensor, entry: Entry) -> Examples:
    if objective.kind in ("cross entropy", "negative log-likelihood"):
        return _of_classes(objective, scores, entry)
    targets = objective.targets
    each = _elementwise(objective, scores)
    per_row = each.flatten(1).mean(1) if each.dim() > 1 else each
    rows = torch.arange(len(per_row))
    single = targets.flatten() if targets.numel() == len(per_row) else None
    if single is None or "binary" not in objective.kind or not bool(((single == 0) | (single == 1)).all()):
        return Examples(per_row.cpu(), None, None, rows, entry, objective.kind)
    bound = 0.0 if objective.kind.endswith("logits") else 0.5
    correct = (scores.flatten() > bound) == (single == 1)
    return Examples(per_row.cpu(), single.long().cpu(), correct.cpu(), rows, entry, objective.kind)


def _of_classes(objective: Objective, scores: Tensor, entry: Entry) -> Examples:
    targets, kind = objective.targets, objective.kind
    if targets.is_floating_point():
        each = functional.cross_entropy(scores, targets, reduction="none")
        return Examples(each.flatten().cpu(), None, None, _rows(each, entry), entry, f"{kind} with shares as targets")
    function = functional.cross_entropy if kind == "cross entropy" else functional.nll_loss
    each = function(scores, targets, ignore_index=objective.ignored, reduction="none").flatten().cpu()
    correct = (scores.argmax(1 if scores.dim() > 1 else 0) == targets).flatten().cpu()
    kept = (targets != objective.ignored).flatten().cpu()
    classes = targets.flatten().cpu()
    return Examples(each[kept], classes[kept], correct[kept], _rows(targets, entry)[kept], entry, kind)


def _elementwise(objective: Objective, scores: Tensor) -> Tensor:
    targets = objective.targets.float()
    if objective.kind == "mean squared error":
        return functional.mse_loss(scores, targets, reduction="none")
    if objective.kind == "binary cross entropy":
        return functional.binary_cross_entropy(scores, targets, reduction="none")
    return functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")


def _rows(values: Tensor, call: Entry) -> Tensor:
    """The row of the batch of each entry, flat; the positions of a row follow each other where they were flattened."""
    given = rows_of([call.args, call.kwargs])
    rows = len(values) if values.dim() else 1
    if given and values.dim() == 1 and rows % given == 0:
        rows = given
    return torch.arange(rows).repeat_interleave(values.numel() // max(rows, 1))


def _of_calls(entries: Sequence[Entry]) -> Examples | None:
    """The last loss of torch's that can be left unreduced, or mean or sum over rows, behind a model's call."""
    call = next((entry for entry in reversed(entries) if entry.streams is not None), None)
    if call is None:
        return None
    rows = rows_of([call.args, call.kwargs])
    behind = _behind(call, entries)
    for entry in reversed(entries):
        given = next(iter(tensors_in([entry.args, entry.kwargs])), None)
        if given is None or id(given) not in behind or not given.dim():
            continue
        name, found = name_of(entry.function), None
        if name in LOSSES and (bound := _bound(entry)) is not None:
            each = entry.function(**{**bound, "reduction": "none"})
            found = _per_row(each, name.replace("_", " "), call, bound.get("target"), bound.get("input"))
        elif name in ("mean", "sum") and given.is_floating_point():
            found = _per_row(given.detach(), f"a {name} by hand", call, None, None)
        if found is not None and len(found.losses) and int(found.rows[-1]) + 1 == rows:
            return found
    return None


def _behind(call: Entry, entries: Sequence[Entry]) -> set[int]:
    """What was computed from the call's output."""
    found = {id(tensor) for tensor in tensors_in(call.result)}
    for entry in entries:
        if any(id(tensor) in found for tensor in tensors_in([entry.args, entry.kwargs])):
            found |= {id(tensor) for tensor in tensors_in(entry.result)}
    return found


def _bound(entry: Entry) -> dict[str, Any] | None:
    try:
        found = inspect.signature(entry.function).bind(*entry.args, **entry.kwargs)
    except (TypeError, ValueError):
        return None
    return dict(found.arguments) if "reduction" in found.signature.parameters else None


def _per_row(each: Tensor, what: str, call: Entry, target: Any, scores: Any) -> Examples:
    by_class = isinstance(target, Tensor) and not target.is_floating_point() and target.shape == each.shape
    if by_class and isinstance(target, Tensor):
        fits = isinstance(scores, Tensor) and scores.dim() == target.dim() + 1
        kept = (target.flatten() >= 0).cpu()  # what a loss leaves out is numbered below zero
        correct = (scores.argmax(1) == target).flatten().cpu()[kept] if fits else None
        losses, classes = each.detach().flatten().cpu()[kept], target.flatten().cpu()[kept]
        return Examples(losses, classes, correct, _rows(target, call)[kept], call, what)
    per_row = each.detach().flatten(1).mean(1) if each.dim() > 1 else each.detach()
    return Examples(per_row.cpu(), None, None, torch.arange(len(per_row)), call, what)
