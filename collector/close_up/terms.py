"""A loss taken apart into its addends, and what its terms compare."""

from __future__ import annotations

from weaklink.collector.close_up.operations import ADDITION, DISTANCES, GATHERING, SAME_ENTRIES, SCALING
from weaklink.collector.close_up.values import Value

_ADDENDS = 256


def addends(loss: Value) -> list[Value]:
    """The numbers a loss is a weighted sum of, as far as the script wrote it as one.

    Only single numbers are taken apart: an addition inside of a network is no term of a loss.
    """
    found: list[Value] = []
    queue, seen = [loss], {id(loss)}
    while queue and len(found) < _ADDENDS:
        value = queue.pop()
        parts = _parts(value)
        if not parts:
            found.append(value)
        for part in parts:
            if id(part) not in seen:
                seen.add(id(part))
                queue.append(part)
    return found


def _parts(value: Value) -> list[Value]:
    """The numbers it is a weighted sum of; none where it is an addend itself."""
    operation = value.operation
    if operation is None or operation.cut is not None or operation.zeroed:
        return []
    operands = operation.operands
    if operation.name in SCALING and len(operands) == 2:
        # A weight that no parameter has a part in; with two such factors the value itself is a constant.
        weights = [operand for operand in operands if not operand.parameters]
        operands = [operand for operand in operands if operand.parameters] if len(weights) == 1 else []
    elif operation.name not in ADDITION | SCALING | GATHERING:
        return []
    return operands if all(_is_number(operand) for operand in operands) else []


def _is_number(value: Value) -> bool:
    """One number, or numbers laid side by side: `torch.stack([a, b])`, whose own operands are numbers."""
    if value.single:
        return True
    made = value.operation
    gathered = made is not None and made.name in ("stack", "cat", "concat")
    return gathered and made is not None and all(operand.single for operand in made.operands)


def comparison(name: str, first: Value, second: Value) -> str | None:
    """Why an input and a target are not two things: *same*, *of_one*; None where they are."""
    if not first.parameters:
        return None  # data against data is a scale that the script takes from its targets
    if name in DISTANCES and _same_entries(first) is _same_entries(second):
        return "same"
    if not first.history and not second.history and not first.single and _source(first) is _source(second):
        return "of_one"
    return None


def _same_entries(value: Value) -> Value:
    """What it is another shape, place or detached copy of."""
    while (made := value.operation) is not None and made.name in SAME_ENTRIES and len(made.operands) == 1:
        value = made.operands[0]
    return value


def _source(value: Value) -> Value:
    """What it is a function of alone, as far back as every operation takes one tensor and changes no place of it."""
    while (made := value.operation) is not None and len(made.operands) == 1:
        value = made.operands[0]
    return value
