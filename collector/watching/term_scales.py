"""Two terms of one loss on different scales: an error averaged over the elements of an example beside a divergence that
is summed over its latent ones.

The evidence lower bound (Kingma and Welling, 2014) sums both over the elements of an example. Averaging one alone
divides its weight by their number, which may be meant: whether it costs the model what it should learn is read from the
error itself, against the best that outputs which ignore their inputs could do on the same batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.losses.by_hand import wide
from weaklink.collector.watching.node_shapes import Shape, shape_of
from weaklink.collector.watching.nodes import before, name_of
from weaklink.collector.watching.scaled_terms import terms_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of

_ERRORS = {"MseLossBackward0": "squared error", "BinaryCrossEntropyWithLogitsBackward0": "binary cross entropy",
           "BinaryCrossEntropyBackward0": "binary cross entropy"}  # fmt: skip
_MEAN = 1
ENTRIES_LIMIT = 4_000_000


@dataclass
class TermScales:
    """The two terms of one sampled loss.

    Attributes:
        kind: The averaged error in words.
        averaged: Elements of one example that it is averaged over.
        summed: Elements of one example that the divergence is summed over.
        error: The averaged error.
        constant: Least error, on this batch, of outputs that are the same for every example.
    """

    kind: str
    averaged: int
    summed: int
    error: float
    constant: float
    site: Site | None
    other: Site | None


def read_term_scales(root: Any, code: UserCode) -> TermScales | None:
    """The terms of this loss, where they are such a pair; else None."""
    terms = terms_of(root)
    if terms is None or len(terms) != 2:
        return None
    errors = [node for _, node in terms if name_of(node) in _ERRORS and int(node._saved_reduction) == _MEAN]
    others = [node for _, node in terms if node not in errors]
    if len(errors) != 1 or len(others) != 1 or any(factor == 0.0 for factor, _ in terms):
        return None
    outputs, targets = errors[0]._saved_self, errors[0]._saved_target
    rows = outputs.shape[0] if outputs.dim() > 1 else 0
    latent = _summed_divergence(others[0], rows)
    if latent is None or outputs.shape != targets.shape or outputs.numel() > ENTRIES_LIMIT or rows < 2:
        return None
    averaged = outputs.numel() // rows
    if averaged < 2 or latent < 2:
        return None
    weight = {id(node): abs(factor) for factor, node in terms}
    if weight[id(others[0])] * averaged <= weight[id(errors[0])]:
        return None  # the divergence is scaled down by as much
    error, constant = _errors(name_of(errors[0]), outputs, targets)
    site = site_of(errors[0], code, f"averaged over {averaged} elements of an example")
    other = site_of(others[0], code, f"summed over {latent} elements of an example")
    return TermScales(_ERRORS[name_of(errors[0])], averaged, latent, error, constant, site, other)


def _summed_divergence(node: Any, rows: int) -> int | None:
    """Over how many elements of an example a Gaussian divergence is summed: sum then mean over rows, or sum over all.

    Recognised by what makes it up: a square and an exponential of one shape, added up under one sum.
    """
    if name_of(node).startswith("MeanBackward"):
        node = before(node)
    summed = node
    while name_of(summed) in ("MulBackward0", "DivBackward0", "NegBackward0"):
        summed = before(summed) or before(summed, 1)
    if not name_of(summed).startswith("SumBackward"):
        return None
    shape, found = _elementwise(summed)
    if shape is None or len(shape) < 2 or shape[0] != rows or not found >= {"square", "exponential"}:
        return None
    return math.prod(shape[1:])


def _elementwise(summed: Any) -> tuple[Shape | None, set[str]]:
    """Shape of what is summed, and which of squares and exponentials stand in it."""
    found: set[str] = set()
    shape = shape_of(before(summed)) if before(summed) is not None else None
    todo, count = [before(summed)], 0
    while todo and count < 32:
        node = todo.pop()
        count += 1
        if node is None or shape_of(node) != shape:
            continue
        name = name_of(node)
        if name == "PowBackward0" or (name == "MulBackward0" and before(node, 0) is before(node, 1) is not None):
            found.add("square")
        elif name == "ExpBackward0":
            found.add("exponential")
        elif name.startswith(("AddBackward", "SubBackward", "RsubBackward", "MulBackward", "NegBackward")):
            todo += [inner for inner, _ in node.next_functions]
    return shape, found


def _errors(name: str, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """The mean error, and that of the best outputs that are one and the same for every example."""
    given, wanted = wide(outputs), wide(targets)
    average = wanted.mean(0, keepdim=True).expand_as(wanted)
    if name == "MseLossBackward0":
        pair = ((given - wanted) ** 2).mean(), ((average - wanted) ** 2).mean()
    else:
        entropy = torch.nn.functional.binary_cross_entropy
        own = given.sigmoid() if "Logits" in name else given
        pair = entropy(own, wanted), entropy(average, wanted)
    error, constant = torch.stack(list(pair)).tolist()
    return float(error), float(constant)
