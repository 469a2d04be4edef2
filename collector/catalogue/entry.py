"""The shape of an entry, and what several entries share."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from weaklink.collector.evidence import Boundary, Model


class NoParameters(Model):
    """The experiment is one change; there is nothing to choose."""


class ParameterGlob(Model):
    """Shell-style pattern over parameter names, such as `head.*`."""

    parameters: str = Field(default="*", min_length=1, max_length=200)


@dataclass(frozen=True)
class Entry:
    """One experiment.

    `can_move` names the measurements (without their brackets) that the intervention is able to move. A stay-list made
    only of others would hold whatever happens, so the contract refuses it. `decides` names the mechanism families whose
    claim it can support: a row that flips under a change says nothing of a family that has no part in that change.
    """

    name: str
    boundary: Boundary
    changes: str
    cannot_change: str
    not_applicable: str
    parameters: type[Model]
    can_move: frozenset[str]
    decides: frozenset[str]


# What a change can move, by where in the first step it acts: everything that comes after it, and nothing before.
FROM_STEP = frozenset({"moved", "delta.net", "loss.last", "loss.trend", "losses", "row", "listed", "steps"})
FROM_BACKWARD = FROM_STEP | {"gradient.first"}
FROM_LOSS = FROM_BACKWARD | {"loss.first"}
FROM_FORWARD = FROM_LOSS | {"output.first"}
