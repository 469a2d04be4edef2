"""Scores over classes that were reshaped where their dimensions should have been exchanged.

`view` keeps the order of the numbers in memory: (B, T, C) viewed as (B, C, T) has in the place of one position's
classes numbers of several positions. The shapes fit, and every score belongs to something else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weaklink.collector.evidence import Site
from weaklink.collector.watching.node_shapes import Shape, shape_of
from weaklink.collector.watching.nodes import before, name_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of

_LOSSES = ("NllLossBackward0", "NllLoss2DBackward0")
_VIEWS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0")
# What keeps every number where it stands, between a view and the loss.
_IN_PLACE = ("LogSoftmaxBackward0", "ToCopyBackward0", "CloneBackward0", "DivBackward0", "MulBackward0")


@dataclass
class Exchange:
    """A view of scores, from one shape to another, and the line that makes it."""

    outputs: Shape
    scores: Shape
    site: Site | None


def find_exchange(node: Any, code: UserCode) -> Exchange | None:
    """The view that puts numbers of other positions in the place of a position's classes, below a loss over classes."""
    if name_of(node) not in _LOSSES:
        return None
    inner = before(node)
    for _ in range(8):
        if name_of(inner) in _VIEWS:
            scores, outputs = shape_of(inner), shape_of(before(inner))
            if scores is None or outputs is None:
                return None
            if _exchanged(outputs, scores) or _straddles(outputs, scores):
                return Exchange(outputs, scores, site_of(inner, code, "scores reshaped"))
        elif name_of(inner) not in _IN_PLACE:
            return None
        inner = before(inner)  # torch views losses of several positions itself, and keeps the classes second
    return None


def _exchanged(outputs: Shape, scores: Shape) -> bool:
    """(B, ..., C) as (B, C, ...): the same lengths in another order, the classes taken from the end to the second."""
    if len(outputs) != len(scores) or len(scores) < 3 or outputs[0] != scores[0]:
        return False
    classes = scores[1]
    moved = (outputs[0], outputs[-1], *outputs[1:-1])
    return classes > 1 and scores == moved and outputs != scores and classes not in outputs[1:-1]


def _straddles(outputs: Shape, scores: Shape) -> bool:
    """(B, C, ...) as (B * ..., C): one row of scores then runs over several positions, and over part of a class."""
    if len(scores) != 2 or len(outputs) < 3:
        return False
    classes, last = scores[1], outputs[-1]
    positions = math.prod(outputs[2:])
    whole = scores[0] == outputs[0] * positions
    return classes > 1 and outputs[1] == classes and positions > 1 and whole and last % classes != 0
