"""Element-wise products in a loss that pair everything with everything: (B,) with (B, 1) gives (B, B).

A rule of its own for losses written by hand. Only what can be nothing else is reported: one operand comes from the
model, one row an example, the other is given data; they differ in their number of dimensions, nobody added one to what
the model gave; and the table of all pairs is reduced to one number at once, and the pairing of rows is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weaklink.collector.evidence import Site
from weaklink.collector.watching.node_shapes import Shape, constant, operand_shapes, shape_of
from weaklink.collector.watching.nodes import name_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of

# What may be done to each entry of the table before it is reduced, and keeps it a table of all pairs.
_ELEMENTWISE = ("AddBackward", "SubBackward", "RsubBackward", "NegBackward", "PowBackward", "ClampBackward",
                "ClampMinBackward", "ReluBackward", "AbsBackward", "MulBackward", "DivBackward")  # fmt: skip
_REDUCED = ("MeanBackward0", "SumBackward0")
# Somebody wrote down that a dimension is wanted there.
_RESHAPED = ("UnsqueezeBackward0", "ViewBackward0", "ReshapeAliasBackward0", "ExpandBackward0", "TBackward0",
             "TransposeBackward0", "PermuteBackward0")  # fmt: skip


@dataclass
class Crossing:
    """One product of all pairs: the shapes that met, and where. `made` is the line that gave the operand its shape."""

    outputs: Shape
    given: Shape
    joint: Shape
    site: Site | None
    made: Site | None


def find_crossing(node: Any, above: dict[Any, Any], rows: set[int], code: UserCode) -> Crossing | None:
    """The crossing whose product is this node.

    Args:
        node: A node near the loss.
        above: Each node near the loss with the one above it.
        rows: First dimensions of what the model was called with.
        code: Tells the user's frames.
    """
    if name_of(node) != "MulBackward0" or (given := constant(node)) is None:
        return None
    position = next(i for i, (inner, _) in enumerate(node.next_functions) if inner is not None)
    outputs, joint = operand_shapes(node)[position], shape_of(node)
    if outputs is None or joint is None or not _crossed(outputs, tuple(given.shape), joint):
        return None
    inner = node.next_functions[position][0]
    if name_of(inner) in _RESHAPED or joint[0] not in rows or not _reduced_at_once(node, above, joint):
        return None
    return Crossing(
        outputs,
        tuple(given.shape),
        joint,
        site_of(node, code, "all pairs are made"),
        site_of(_maker(inner, outputs), code, f"shape {list(outputs)} comes from here"),
    )


def find_meeting(node: Any, above: dict[Any, Any], rows: set[int]) -> Shape | None:
    """The shape in which the model's numbers meet as many given ones entry by entry; None where this node is no such.

    A product on its way to the loss, as in `find_crossing`, of which nothing is misread.
    """
    if name_of(node) != "MulBackward0" or (given := constant(node)) is None:
        return None
    position = next(i for i, (inner, _) in enumerate(node.next_functions) if inner is not None)
    outputs, joint = operand_shapes(node)[position], shape_of(node)
    if outputs is None or outputs != joint or outputs != tuple(given.shape) or not joint or joint[0] not in rows:
        return None
    while (node := above[node]) is not None and name_of(node) not in _REDUCED:
        if not name_of(node).startswith(_ELEMENTWISE) or shape_of(node) != joint:
            return None
    return joint if node is not None else None


def _crossed(outputs: Shape, given: Shape, joint: Shape) -> bool:
    """(B,) and (B, 1), either way."""
    if {len(outputs), len(given)} != {1, 2} or len(joint) != 2:
        return False
    count = math.prod(outputs)
    two = outputs if len(outputs) == 2 else given
    return count == math.prod(given) > 1 and two == (count, 1) and joint == (count, count)


def _reduced_at_once(node: Any, above: dict[Any, Any], joint: Shape) -> bool:
    """Whether only element-wise operations lie between the table and its reduction to one number."""
    node = above[node]
    while node is not None and name_of(node) not in _REDUCED:
        if not name_of(node).startswith(_ELEMENTWISE) or shape_of(node) != joint:
            return False
        other = constant(node)
        if other is not None and tuple(other.shape) == joint:
            return False  # a mask or a kernel over all pairs: they are meant
        node = above[node]
    return node is not None


def _maker(node: Any, shape: Shape) -> Any:
    """The operation that gave an operand its shape: the first one, going back, whose own operands have another."""
    for _ in range(32):
        behind = [inner for inner, _ in node.next_functions if inner is not None]
        if not behind or shape_of(behind[0]) != shape:
            break
        node = behind[0]
    return node
