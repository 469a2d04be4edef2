"""What the user said about the system, and what only a system in hand can be asked. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Declared:
    """The user's own words. `expected` are patterns over parameter names; empty: all that require a gradient.

    `rule` is the name of a function given with `--rule`.
    """

    task: str | None = None
    expected: tuple[str, ...] = ()
    num_classes: int | None = None
    rule: str | None = None

    @classmethod
    def of(cls, task: str | None, expected: str | Sequence[str] | None, num_classes: int | None) -> Declared:
        """Declarations as a factory or a ledger gives them."""
        patterns = (expected,) if isinstance(expected, str) else tuple(expected or ())
        return cls(task, patterns, num_classes)

    def expects(self, name: str) -> bool:
        """Whether a parameter of that name is declared to be trained. Without patterns nothing is declared."""
        return any(fnmatchcase(name, pattern) for pattern in self.expected)


@dataclass(frozen=True)
class Fit:
    """How far one optimizer came on the tiny batch.

    Attributes:
        name: The optimizer.
        first: Loss before anything moved.
        last: Loss after the last step's update: after 501 steps, what a 502nd would have printed.
        accuracy: Share of rows whose largest output is the target's, there; None where the targets are no class
            indices.
    """

    name: str
    first: float
    last: float
    accuracy: float | None = None


@dataclass
class ModeGap:
    """The loss on one batch in train mode and in eval mode; `modules` are the kinds that differ between the two."""

    train: float
    evaluation: float
    modules: list[str]


@dataclass
class Independence:
    """Row `changed` of the inputs was replaced by another row's: which other rows' outputs moved (eval mode)."""

    rows: int
    changed: int
    moved: list[int]


@dataclass
class Examined:
    """Looks that take a forward, a step or a fit of our own: only a factory or a ledger allows them.

    `refused` says why a look was not taken, by row id.
    """

    set_aside: int = 0
    out_of_range: str | None = None
    rows_refused: str | None = None
    copies: str | None = None
    capability: list[Fit] | None = None
    capability_steps: int = 0
    mode_gap: ModeGap | None = None
    validation: ModeGap | None = None
    independence: Independence | None = None
    # Rows that repeat another; inputs that stand with more than one target.
    duplicates: tuple[int, int] | None = None
    # Rows, those whose nearest neighbour has the same target, and the best of the permutations.
    neighbours: tuple[int, int, int] | None = None
    refused: dict[str, str] = field(default_factory=dict)

    def refuse(self, row_id: str, reason: str) -> None:
        """A look was not taken. `row_id` is a row, or a boundary for all of its rows."""
        self.refused[row_id] = reason

    def why_not(self, row_id: str, otherwise: str) -> str:
        """The reason a row was not measured."""
        return self.refused.get(row_id) or self.refused.get(row_id.partition("/")[0]) or otherwise
