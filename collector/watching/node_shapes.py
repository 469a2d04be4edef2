"""Shapes of what the operations of a graph gave, and the constants they save."""

from __future__ import annotations

from typing import Any

from torch import Tensor

Shape = tuple[int, ...]


def shape_of(node: Any, number: int = 0) -> Shape | None:
    """Shape of an operation's result; None where torch does not tell (a custom Function, another version)."""
    try:
        return tuple(int(length) for length in node._input_metadata[number].shape)
    except (AttributeError, IndexError, TypeError, RuntimeError):
        return None


def operand_shapes(node: Any) -> list[Shape | None]:
    """Shapes of an operation's operands that carry a history; None for each that does not."""
    return [None if inner is None else shape_of(inner, number) for inner, number in node.next_functions]


def constant(node: Any) -> Tensor | None:
    """The operand of a two-sided product or quotient that carries no history, where the node saved it."""
    sides = [inner is None for inner, _ in node.next_functions]
    if len(sides) != 2 or sides[0] == sides[1]:
        return None
    saved = getattr(node, "_saved_self" if sides[0] else "_saved_other", None)
    return saved if isinstance(saved, Tensor) else None


def number(node: Any) -> float | None:
    """That operand, where it is one number."""
    saved = constant(node)
    if saved is None:
        # A product with a Python number has one input alone, and keeps the number.
        saved = getattr(node, "_saved_other", None) if len(node.next_functions) == 1 else None
    if isinstance(saved, Tensor):
        return float(saved) if saved.dim() == 0 else None
    return float(saved) if isinstance(saved, (int, float)) else None
