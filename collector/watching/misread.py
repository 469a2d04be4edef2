"""Answers that an evaluation scores in another arrangement than the targets have: told by identity of the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from weaklink.collector.evidence import Site

Kind = Literal["all pairs", "batch axis"]


@dataclass
class Misread:
    """One comparison of answers with targets.

    Attributes:
        kind: "all pairs": each answer meets every target. "batch axis": the largest entry was looked for over the
            examples of the batch, and not over an example's classes.
        rows: Answers that were compared.
    """

    kind: Kind
    rows: int
    site: Site | None


def misread(one: Tensor, other: Tensor, output: Tensor, target: Tensor) -> Kind | None:
    """What a comparison of two tensors is, if one of them is read off a model's answers and the other is their target.

    Args:
        one, other: The two sides of a comparison, as many of one of them as there are rows.
        output: The model's answers to these rows, (rows, ...), all of them.
        target: Their targets, (rows, ...).
    """
    for answers, against in ((one, other), (other, one)):
        if against.numel() != target.numel() or not _equal(against, target):
            continue
        if _meets_all(answers, against) and any(_equal(answers, guess) for guess in _two_classes(output)):
            return "all pairs"
        # Where every class is one example's, rows and columns are matched with each other, and both ways are asked for.
        matching = len(torch.unique(target)) == target.numel()
        if answers.shape == against.shape and not matching and _is_over_batch(answers, output):
            return "batch axis"
    return None


def meets_all(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether shapes (rows, 1) and (rows,) meet: each row of one then meets every row of the other."""
    column, line = sorted((one, other), key=len, reverse=True)
    return len(column) == 2 and len(line) == 1 and column[1] == 1 and column[0] == line[0] > 1


def _meets_all(one: Tensor, other: Tensor) -> bool:
    return meets_all(tuple(one.shape), tuple(other.shape))


def _two_classes(output: Tensor) -> list[Tensor]:
    """All usual ways to read two classes off one number a row."""
    if output.numel() != len(output):
        return []
    return [output > 0, output > 0.5, output >= 0, output >= 0.5, output.sigmoid() > 0.5, output.round()]


def _is_over_batch(answers: Tensor, output: Tensor) -> bool:
    """Whether they are the largest entries over the rows of (rows, classes), and not over the classes."""
    if output.dim() != 2 or output.shape[0] != output.shape[1] or answers.dim() != 1 or answers.is_floating_point():
        return False
    over_rows, over_classes = output.argmax(0), output.argmax(1)
    return _equal(answers, over_rows) and not _equal(answers, over_classes)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and torch.equal(
        one.detach().flatten().float().cpu(), other.flatten().float().cpu()
    )
