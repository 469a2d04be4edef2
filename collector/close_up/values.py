"""What is known of a tensor in the close-up: where it came from. Plain data, no tensor is kept alive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weaklink.collector.evidence import Site


@dataclass(eq=False)
class Value:
    """One tensor as it was when an operation took or gave it.

    Attributes:
        parameters: Bit n is set where it was computed from the parameter of serial number n, with a history or not.
        history: Whether it requires a gradient.
        data: Whether it comes from a tensor that is neither a parameter nor made of constants.
        operation: What gave it; None for what the close-up did not see made.
        used: Whether some loss reaches it by a path that carries a history.
        leaf: Whether it is itself a parameter, or another tensor that asks for its gradient.
        number: What it holds, where it is one number that was computed from parameters and has no history.
    """

    parameters: int
    history: bool
    data: bool
    shape: tuple[int, ...]
    floating: bool
    operation: Operation | None = None
    used: bool = False
    leaf: bool = False
    number: float | None = None

    @property
    def single(self) -> bool:
        """Whether it is one number."""
        return all(length == 1 for length in self.shape)


@dataclass(eq=False)
class Operation:
    """One call of torch from the user's code.

    Attributes:
        name: The function's name.
        site: The innermost line of the user's code.
        operands: What it took, in order.
        cut: How a history ended here: `detach`, `copy` (rebuilt from numbers), `no_grad` or `checkpoint` (a re-entrant
            one that was given nothing with a history); None where none did.
        cut_site: The line that ended it, which may be another one: the one that switched gradients off.
        infinite, nan: Whether its result holds such entries; flags on the device, None where nobody asked.
        meeting: Outputs and targets of unlike rank that met here.
        all_pairs: Whether two operands that both have a history met here as (B,) and (B, 1).
        zeroed: Whether a number among its arguments is 0.
    """

    name: str
    site: Site
    operands: list[Value] = field(default_factory=list)
    cut: str | None = None
    cut_site: Site | None = None
    infinite: object = None
    nan: object = None
    meeting: Meeting | None = None
    all_pairs: bool = False
    zeroed: bool = False


@dataclass
class Meeting:
    """Two operands of unlike rank, (B,) and (B, 1), that became (B, B): `digest` is of the one from the data."""

    output: Value
    target: Value
    digest: str


def ancestors(value: Value, with_history: bool = False) -> Iterator[Value]:
    """The value and everything it was computed from, each once; on request only along paths that carry a history."""
    queue, seen = [value], {id(value)}
    while queue:
        current = queue.pop()
        if with_history and not current.history:
            continue
        yield current
        for operand in current.operation.operands if current.operation is not None else ():
            if id(operand) not in seen:
                seen.add(id(operand))
                queue.append(operand)


def cuts_of(value: Value) -> list[Operation]:
    """Where a history ended on the way to this value: the nearest operations, none behind them."""
    found: list[Operation] = []
    queue, seen = [value], {id(value)}
    while queue:
        operation = queue.pop().operation
        if operation is None:
            continue
        if operation.cut is not None:
            found.append(operation)
            continue
        for operand in operation.operands:
            if id(operand) not in seen:
                seen.add(id(operand))
                queue.append(operand)
    return found
