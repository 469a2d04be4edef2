"""The shape of a branch's page, and what several of them share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weaklink.agent.advisors.by_hand import deciding
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.drill.shapes import Measurement, RunNumbers
from weaklink.agent.proposal import ExperimentChoice
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import Evidence, StepRecord, Value

SHORTEST_TAIL = 10
PASSING = ("pass", "evidence")

Pair = tuple[Evidence, Evidence]


@dataclass(frozen=True)
class ControlPlan:
    """One change, the question it answers, and how the answer is read from the run without and the run with it."""

    question: str
    choice: ExperimentChoice
    read: Callable[[Evidence, Evidence], tuple[str, str]]


def _nothing_together(pairs: Sequence[Pair]) -> tuple[bool, str] | None:
    return None


@dataclass(frozen=True)
class DrillPage:
    """What is done in one branch.

    Attributes:
        advice: Which kind of fix comes first.
        measure: The first measurement, read from the observed run.
        control: The control that splits its causes; None where this run offers none.
        fixes: What to try, one at a time, the first to hold on the first seed is taken over the others.
        shows: Whether a run shows the branch's symptom.
        holds: Whether the symptom is gone in the second run, which carries the fix.
        together: Whether all seeds together show it too, with one sentence; None where each for itself is enough.
    """

    advice: str
    measure: Callable[[Evidence], Measurement]
    control: Callable[[Evidence, Measurement], ControlPlan | None]
    fixes: Callable[[Evidence], list[ExperimentChoice]]
    shows: Callable[[Evidence], bool]
    holds: Callable[[Evidence, Evidence], bool]
    together: Callable[[Sequence[Pair]], tuple[bool, str] | None] = _nothing_together


def choice(name: str, **parameters: Value) -> ExperimentChoice:
    """An entry of the catalogue with its parameters."""
    return ExperimentChoice(name=name, parameters=parameters)


def wiring_first(evidence: Evidence) -> list[ExperimentChoice]:
    """The playbook's experiment for the first divergence, then those that can decide it and need no parameter."""
    return distinct([*asked(evidence), *deciding_freely(evidence)])


def asked(evidence: Evidence) -> list[ExperimentChoice]:
    """The one experiment that the playbook asks for, if it does."""
    proposed = Playbook().advise(evidence, "", []).experiment
    return [] if proposed is None else [proposed]


def deciding_freely(evidence: Evidence) -> list[ExperimentChoice]:
    """Experiments that can decide the first divergence and leave nothing to choose."""
    row = evidence.first_divergence
    return [] if row is None else [choice(name) for name in deciding(row) if not _required(name)]


def distinct(choices: Sequence[ExperimentChoice]) -> list[ExperimentChoice]:
    """Each experiment once, by its name: the first that asks for it has the parameters."""
    found: dict[str, ExperimentChoice] = {}
    for each in choices:
        found.setdefault(each.name, each)
    return list(found.values())


def _required(name: str) -> bool:
    return any(field.is_required() for field in CATALOGUE[name].parameters.model_fields.values())


def row_passes(observed: Evidence, treated: Evidence) -> bool:
    """Whether the observed run's first divergence is measured in the treated one, and diverges no more.

    True where the observed run has none: then there is nothing that could still diverge.
    """
    first = observed.first_divergence
    found = treated.row(first.id) if first is not None else None
    return first is None or (found is not None and found.status in PASSING)


def tail(evidence: Evidence) -> list[float]:
    """The last tenth of the losses, ten at least where there are that many."""
    values = evidence.losses.value
    return values[-max(SHORTEST_TAIL, len(values) // 10) :]


def numbers(evidence: Evidence, row_id: str | None) -> RunNumbers:
    """A run in a few numbers; `row_id` is the row whose status is told."""
    losses, row = evidence.losses.value, evidence.row(row_id) if row_id else None
    return RunNumbers(
        branch=evidence.branch,
        steps=evidence.outcome.steps,
        loss_first=losses[0] if losses else None,
        loss_last=mean(tail(evidence)),
        row=row.status if row is not None else None,
    )


def mean(values: Sequence[float]) -> float | None:
    """The mean; NaN where one is not finite, None of nothing."""
    if not values:
        return None
    return statistics.fmean(values) if all(map(math.isfinite, values)) else math.nan


def norms(step: StepRecord) -> tuple[float, float, float] | None:
    """Gradient, update and parameter norm of a sampled step; None where one was not taken."""
    found = (step.gradient_norm, step.delta_norm, step.parameter_norm)
    return None if None in found else found  # type: ignore[return-value]
