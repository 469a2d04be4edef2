"""Names of autograd nodes, and what stands before one. Reads `next_functions` and the sizes a node keeps, no tensor."""

from __future__ import annotations

from typing import Any

from torch.autograd.function import FunctionCtx

# Key in a node's metadata, which torch keeps for whoever wants it: where the user's code called the operation.
SITE = "weaklink.site"
# Operations that change shape or place and no value.
_SHAPE_ONLY = frozenset(
    {
        "ViewBackward0",
        "UnsafeViewBackward0",
        "ReshapeAliasBackward0",
        "TransposeBackward0",
        "TBackward0",
        "PermuteBackward0",
        "SqueezeBackward0",
        "SqueezeBackward1",
        "UnsqueezeBackward0",
        "CloneBackward0",
        "SelectBackward0",
        "SliceBackward0",
        "IndexBackward0",
        "ToCopyBackward0",
        "AliasBackward0",
        "ExpandBackward0",
    }
)
# What log-probabilities are made with. Scaled or shifted afterwards they may exceed zero.
_LOGARITHMS = frozenset(
    {"LogSoftmaxBackward0", "LogBackward0", "Log1PBackward0", "LogsumexpBackward0", "LogSigmoidBackward0"}
)


def name_of(node: Any) -> str:
    """The node's name; empty for a custom Function whose user put a `name` of their own on its `ctx`."""
    return str(node.name()) if node is not None and callable(node.name) else ""


def before(node: Any, position: int = 0) -> Any:
    """The node that an input comes from, None at an end."""
    following = node.next_functions if node is not None else ()
    return following[position][0] if position < len(following) else None


def feeding(node: Any, position: int = 0) -> Any:
    """The node an input comes from, past at most eight operations that only change shape or place."""
    inner = before(node, position)
    for _ in range(8):
        if name_of(inner) not in _SHAPE_ONLY:
            break
        inner = before(inner)
    return inner


def makes_logarithms(node: Any) -> bool:
    """Whether a node takes a logarithm, or is written in Python (a custom Function, a compiled graph) and may."""
    return name_of(node) in _LOGARITHMS or isinstance(node, FunctionCtx)
