"""What a softmax before a loss sums to one over: an example's classes, or something else.

Over a dimension of one entry every score becomes 1. Over the examples of a batch the entries of one class add up to
one: where two examples are of a class, at most one of them can be answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from weaklink.collector.evidence import Site
from weaklink.collector.watching.node_shapes import Shape, shape_of
from weaklink.collector.watching.nodes import axis_of, before, feeding, name_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of

_OVER_CLASSES = "NllLossBackward0"
_LOSSES = (
    _OVER_CLASSES,
    "NllLoss2DBackward0",
    "BinaryCrossEntropyBackward0",
    "BinaryCrossEntropyWithLogitsBackward0",
    "MseLossBackward0",
)
_SOFTMAX = ("SoftmaxBackward0", "LogSoftmaxBackward0")


@dataclass
class Normalised:
    """A softmax right before a loss: its result's shape, and what it runs over."""

    over: Literal["one entry", "examples"]
    shape: Shape
    site: Site | None


def find_normalised(node: Any, code: UserCode) -> Normalised | None:
    """The softmax that feeds this loss, where it runs over one entry or over the examples; None otherwise."""
    if name_of(node) not in _LOSSES:
        return None
    softmax = feeding(node)
    if name_of(softmax) == "LogBackward0":
        softmax = before(softmax)
    shape = shape_of(softmax) if name_of(softmax) in _SOFTMAX else None
    if not shape:
        return None
    axis = axis_of(softmax, len(shape))
    # One row is one example, and more entries than rows may be a retrieval: which of these rows is it?
    if shape[axis] == 1 and shape[0] > 1:
        return Normalised("one entry", shape, site_of(softmax, code, "softmax called"))
    if name_of(node) == _OVER_CLASSES and axis == 0 and len(shape) == 2 and shape[0] > shape[1] > 1:
        return Normalised("examples", shape, site_of(softmax, code, "softmax called"))
    return None
