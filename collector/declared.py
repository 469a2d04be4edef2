"""What the user said about the system, and what only a system in hand can be asked. Plain data, no torch."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from weaklink.collector.evidence import Model, Site


class Objective(Model):
    """One loss, by the line or lines of its backward calls, and the parameters that its gradients may change.

    `site` is `train.py:48`; None: every backward call that no other objective names.
    """

    site: str | list[str] | None = None
    parameters: list[str]

    @property
    def sites(self) -> list[str]:
        """The declared lines; none where it takes every other one."""
        return [] if self.site is None else [self.site] if isinstance(self.site, str) else self.site

    def at(self, site: Site | None) -> bool:
        """Whether a backward call there is this objective's, by its own site. A path may be given in part."""
        places = [posixpath.normpath(declared.replace("\\", "/")) for declared in self.sites]
        return site is not None and any(site.place == place or site.place.endswith(f"/{place}") for place in places)


class Metric(Model):
    """The number that says whether the run got better, and which way is better."""

    name: str
    direction: Literal["max", "min"]


class Intent(Model):
    """What the user intends, as the command line and `weaklink.toml` give it. Nothing here is ever guessed.

    `trainable`, `frozen` and an objective's `parameters` are patterns over parameter names, in which `*` crosses dots.
    `slices` names functions, `module:function`, by the slice of the data that each picks.
    """

    trainable: list[str] = []
    frozen: list[str] = []
    classes: int | None = Field(default=None, ge=1)
    objectives: dict[str, Objective] = {}
    metric: Metric | None = None
    slices: dict[str, str] = {}

    @property
    def said(self) -> dict[str, object]:
        """What was declared, and nothing that was not: a claim without intent has the digest it always had."""
        return self.model_dump(mode="json", exclude_defaults=True)


@dataclass(frozen=True)
class Declared:
    """The user's own words. `expected` are patterns over parameter names; empty: all that require a gradient.

    `rule` is the name of a function given with `--rule`. `frozen` are patterns of what must rest.
    """

    task: str | None = None
    expected: tuple[str, ...] = ()
    num_classes: int | None = None
    rule: str | None = None
    frozen: tuple[str, ...] = ()
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    metric: Metric | None = None
    slices: Mapping[str, str] = field(default_factory=dict)
    # All of it as a command gave it, for the evidence: a factory's own words are in its source.
    intent: Intent = field(default_factory=Intent)

    @classmethod
    def intended(cls, task: str | None, rule: str | None, intent: Intent) -> Declared:
        """Declarations as a command gives them."""
        return cls(
            task,
            tuple(intent.trainable),
            intent.classes,
            rule,
            tuple(intent.frozen),
            intent.objectives,
            intent.metric,
            intent.slices,
            intent,
        )

    @classmethod
    def of(cls, task: str | None, expected: str | Sequence[str] | None, num_classes: int | None) -> Declared:
        """Declarations as a factory or a ledger gives them."""
        patterns = (expected,) if isinstance(expected, str) else tuple(expected or ())
        return cls(task, patterns, num_classes)

    def expects(self, name: str) -> bool:
        """Whether a parameter of that name is declared to be trained. Without patterns nothing is declared."""
        return matches([name], self.expected)

    def objective_at(self, site: Site | None) -> str | None:
        """Name of the objective that a backward call there belongs to; None where none was declared for it."""
        named = next((name for name, objective in self.objectives.items() if objective.at(site)), None)
        return named or next((name for name, objective in self.objectives.items() if objective.site is None), None)


def matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Whether one of the names fits one of the patterns, letter for letter; `*` crosses dots."""
    patterns = tuple(patterns)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


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
