"""Losses that only draw two learned sides together: nothing in them keeps the outputs from becoming one constant.

Where every term of a loss is a similarity (or a squared distance) between two tensors made by the same parameters, and
both sides carry a history, the same output for every input is a global optimum: Siamese networks need a stop-gradient,
negatives or a spread term (Chen and He, 2021). Whether a run goes there is read off matched against mismatched pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.losses.by_hand import wide
from weaklink.collector.watching.graph import leaves_of
from weaklink.collector.watching.node_shapes import number, shape_of
from weaklink.collector.watching.nodes import before, name_of
from weaklink.collector.watching.parameters import ParameterBook
from weaklink.collector.watching.scaled_terms import terms_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of

# A side counts as normalised where its length is one up to so many roundings of its type.
_UNIT_ROUNDINGS = 64


@dataclass
class Alignment:
    """One sampled loss of that kind: mean similarity of the pairs that it draws together, and of shifted ones.

    *fixed*: one side of each similarity carries no history, so that a constant output draws nothing towards itself. The
    other side is not kept by the graph then, and the similarities are not known.
    """

    matched: float
    mismatched: float
    site: Site | None
    fixed: bool = False


def read_alignment(root: Any, parameters: ParameterBook, code: UserCode) -> Alignment | None:
    """The loss, where each of its terms raises the cosine similarity of two learned sides; else None."""
    terms = terms_of(root)
    if not terms:
        return None
    matched: list[float] = []
    mismatched: list[float] = []
    site: Site | None = None
    fixed = 0
    for factor, node in terms:
        sign, product = _cosine(node)
        if product is None or factor * sign >= 0.0:
            return None
        if before(product, 0) is None or before(product, 1) is None:
            if not _has_fixed_target(product):
                return None
            fixed += 1
            continue
        sides = [leaves_of(before(product, side), parameters) for side in (0, 1)]
        if not sides[0] or not sides[1] or not (sides[0] <= sides[1] or sides[1] <= sides[0]):
            return None
        one, other = wide(product._saved_self), wide(product._saved_other)
        if one.shape != other.shape or one.dim() != 2 or one.shape[0] < 2:
            return None
        if not _is_unit(product._saved_self) or not _is_unit(product._saved_other):
            return None
        matched.append(float((one * other).sum(-1).mean()))
        mismatched.append(float((one * other.roll(1, 0)).sum(-1).mean()))
        site = site or site_of(product, code, "both sides of the similarity are trained")
    if fixed:
        return Alignment(math.nan, math.nan, None, True) if fixed == len(terms) else None
    return Alignment(sum(matched) / len(matched), sum(mismatched) / len(mismatched), site)


def _cosine(node: Any) -> tuple[float, Any]:
    """The product that is summed over features and then averaged over rows, and the sign with which it enters.

    None in its place for another node.
    """
    if not name_of(node).startswith(("MeanBackward", "SumBackward0")):
        return 0.0, None
    sign, summed = 1.0, before(node)
    for _ in range(4):
        name, sides = name_of(summed), [i for i, _ in summed.next_functions if i is not None] if summed else []
        if len(sides) != 1 or not name.startswith(("Neg", "Rsub", "Mul", "Add", "Sub")):
            break
        by = number(summed) if name.startswith("Mul") else 1.0
        if not by:
            return 0.0, None
        turned = name.startswith(("Neg", "Rsub")) or (name.startswith("Sub") and before(summed, 0) is None)
        sign, summed = sign * by * (-1.0 if turned else 1.0), sides[0]
    product = before(summed)
    if name_of(summed) != "SumBackward1" or name_of(product) != "MulBackward0" or len(shape_of(product) or ()) != 2:
        return 0.0, None
    return sign, product


def _has_fixed_target(product: Any) -> bool:
    """Whether a learned side that was divided by its length meets one of length one that carries no history."""
    learned, target = (1, product._saved_self) if before(product, 0) is None else (0, product._saved_other)
    if not isinstance(target, Tensor) or target.dim() != 2:
        return False
    return name_of(before(product, learned)).startswith("Div") and _is_unit(target)


def _is_unit(side: Tensor) -> bool:
    """Whether each row has length one, up to roundings of the type that it was computed in."""
    unit = torch.finfo(side.dtype).eps * _UNIT_ROUNDINGS
    return bool(((wide(side).norm(dim=-1) - 1.0).abs() <= unit).all())
