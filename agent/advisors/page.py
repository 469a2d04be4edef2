"""What every page of the playbook is made with: mechanisms by what they expect, and keys over chosen parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from weaklink.agent.advisors.base import cite
from weaklink.agent.contract.families import BOUNDARY_OF
from weaklink.agent.measurements import take
from weaklink.agent.patterns import exact_pattern
from weaklink.agent.proposal import (
    Direction,
    ExperimentChoice,
    Mechanism,
    MechanismFamily,
    Prediction,
    Proposal,
    Repair,
)
from weaklink.collector.evidence import Evidence, ParameterRecord, Row, Value

MOST_PATTERNS = 3  # a stay-list is read by people


@dataclass(frozen=True)
class Becomes:
    """The one value that a measurement takes."""

    value: Value


Expected = Direction | Becomes
PASSES = Becomes("pass")


@dataclass(frozen=True)
class Candidate:
    """One mechanism, and what it makes of each measurement the experiment may move."""

    family: MechanismFamily
    explanation: str
    expects: dict[str, Expected]


def experiment(
    evidence: Evidence,
    row: Row,
    choice: ExperimentChoice,
    candidates: Sequence[Candidate],
    stays: Sequence[str],
    repair: Repair,
) -> Proposal:
    """A proposal of one experiment, without the measurements that this run does not offer.

    Args:
        evidence: The observed run.
        row: Its first divergence.
        choice: The experiment of the catalogue.
        candidates: The lead, then its rivals, which expect something of the same measurements.
        stays: What all of them expect to stay as it is.
        repair: What the lead would mend if it is supported.
    """
    changes = [key for key in candidates[0].expects if take(evidence, key).taken]
    kept = [key for key in stays if take(evidence, key).taken]
    return Proposal(
        outcome="experiment",
        first_boundary=row.boundary,
        first_row=row.id,
        cited=cite(row),
        mechanisms=[_mechanism(candidate, row, changes, kept) for candidate in candidates],
        experiment=choice,
        must_change=changes,
        must_stay_unchanged=kept,
        repair=repair,
    )


def _mechanism(candidate: Candidate, row: Row, changes: list[str], stays: list[str]) -> Mechanism:
    return Mechanism(
        id=candidate.family,
        boundary=BOUNDARY_OF.get(candidate.family, row.boundary),
        explanation=candidate.explanation,
        predictions=[_prediction(key, candidate.expects[key]) for key in changes]
        + [Prediction(measurement=key, expect="same") for key in stays],
    )


def _prediction(key: str, expected: Expected) -> Prediction:
    if isinstance(expected, Becomes):
        return Prediction(measurement=key, expect="becomes", value=expected.value)
    return Prediction(measurement=key, expect=expected)


def nothing(expects: dict[str, Expected]) -> dict[str, Expected]:
    """The same measurements, all of them unmoved."""
    return dict.fromkeys(expects, "same")


def model_parameters(evidence: Evidence) -> list[ParameterRecord]:
    """The records of the model's own parameters, not of replaced ones."""
    return [record for record in evidence.parameters if record.in_model]


def received(record: ParameterRecord) -> bool:
    """Whether a backward gave it a gradient, be it zero."""
    return record.gradient not in (None, "missing")


def listed(row: Row, field: str) -> list[str]:
    """A row's list of texts, each once; empty where it has none."""
    value = row.values.get(field)
    return list(dict.fromkeys(str(item) for item in value)) if isinstance(value, list) else []


def moving(evidence: Evidence) -> list[str]:
    """How many parameters move, over all whose movement was measured."""
    return over(evidence, "moved", [record.name for record in model_parameters(evidence) if record.moved is not None])


def movement(evidence: Evidence, pattern: str) -> dict[str, Expected]:
    """That these parameters begin to move; empty where some of them move already, which nothing need increase."""
    if take(evidence, f"moved[{pattern}]").value != 0:
        return {}
    return {f"moved[{pattern}]": "up", f"delta.net[{pattern}]": "up"}


def over(evidence: Evidence, name: str, wanted: Iterable[str]) -> list[str]:
    """Keys of one measurement over the wanted parameters of the model and no others: few, and as wide as can be.

    A name may be wanted and still be left out, where `MOST_PATTERNS` do not reach it.
    """
    asked = set(wanted)
    every = [record.name for record in model_parameters(evidence)]
    left = [each for each in every if each in asked]
    others = [each for each in every if each not in asked]
    if left and not others:
        return [f"{name}[*]"]
    keys: list[str] = []
    while left and len(keys) < MOST_PATTERNS:
        pattern = exact_pattern(left, others)
        if pattern is None:
            break
        keys.append(f"{name}[{pattern}]")
        left = [each for each in left if not fnmatchcase(each, pattern)]
    return keys
