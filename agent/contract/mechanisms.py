"""Candidate causes: where they stand, what each predicts, and whether an experiment could tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from weaklink.agent.advisors.causes import CAUSES
from weaklink.agent.contract.families import BOUNDARY_OF, NONE, order
from weaklink.agent.contract.values import agrees, finite_number, listed, quoted
from weaklink.agent.measurements import take
from weaklink.agent.proposal import Mechanism, Prediction, Proposal
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import BOUNDARIES, Evidence, Status

MOST_SUGGESTED = 6
# What these rows show is the work of all links before them: a regularization that lets nothing be fitted.
_OUTCOMES = ("CAPABILITY", "EVALUATION")
_MEASURED_STATUSES = tuple(status for status in get_args(Status) if status != "not_measured")


def mechanisms(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """As many mechanisms as are read, each once, each at the boundary of its family."""
    ids = [mechanism.id for mechanism in proposal.mechanisms]
    if proposal.outcome == "experiment" and not 2 <= len(ids) <= 3:
        yield f"There are {len(ids)} mechanisms; an experiment needs two or three."
    elif len(ids) > 3:
        yield f"There are {len(ids)} mechanisms; at most three are read."
    for name, count in Counter(ids).items():
        if count > 1:
            yield f"The mechanism {name} stands there {count} times; every id may be used once."
    for mechanism in proposal.mechanisms:
        yield from _mechanism_boundary(mechanism)


def _mechanism_boundary(mechanism: Mechanism) -> Iterator[str]:
    wanted = BOUNDARY_OF.get(mechanism.id)
    stands = f"{mechanism.id} stands at {quoted(mechanism.boundary)}"
    if wanted is None and mechanism.boundary not in (*BOUNDARIES, NONE):
        yield f"{stands}, which is no boundary; use one of: {', '.join(BOUNDARIES)}."
    if wanted is not None and mechanism.boundary != wanted:
        yield f"{stands}; its family belongs to {wanted}."


def lead(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The first mechanism explains the first boundary and what must change and stay."""
    if not proposal.mechanisms:
        return
    first = proposal.mechanisms[0]
    shown = proposal.first_boundary in _OUTCOMES and order(first.boundary) < order(proposal.first_boundary)
    # What a row is known to mean may stand at another boundary: targets left out (TASK) show at the loss (OBJECTIVE).
    known = any(family == first.id for family, _ in CAUSES.get(proposal.first_row or "", ()))
    if first.boundary != proposal.first_boundary and not shown and not known:
        stands = f"The first mechanism, {first.id}, stands at {quoted(first.boundary)}"
        yield f"{stands}; it must explain first_boundary, which is {quoted(proposal.first_boundary)}."
    expected = {prediction.measurement: prediction.expect for prediction in first.predictions}
    for key in dict.fromkeys(proposal.must_change):
        if expected.get(key) == "same":
            yield f"must_change has {quoted(key)}, for which the first mechanism, {first.id}, predicts same."
    for key in dict.fromkeys(proposal.must_stay_unchanged):
        if expected.get(key, "same") != "same":
            yield (
                f"must_stay_unchanged has {quoted(key)}, for which the first mechanism, {first.id}, "
                f"predicts {expected[key]}; it must predict same, or nothing."
            )


def predictions(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Every mechanism predicts the same measurements, each once, in a way that can be judged."""
    # Every mechanism answers for the same measurements: a rival that is silent about one could never be wrong there.
    keys = [dict.fromkeys(p.measurement for p in mechanism.predictions) for mechanism in proposal.mechanisms]
    asked = dict.fromkeys(key for own in (proposal.must_change, *keys) for key in own)
    for mechanism, own in zip(proposal.mechanisms, keys, strict=True):
        missing = [key for key in asked if key not in own]
        if missing:
            yield f"{mechanism.id} predicts nothing for: {listed(missing)}; every mechanism must predict each of them."
        if len(own) < len(mechanism.predictions):
            yield f"{mechanism.id} predicts the same measurement more than once; one prediction a measurement."
        for prediction in mechanism.predictions:
            yield from _prediction(mechanism, prediction, evidence)


def _prediction(mechanism: Mechanism, prediction: Prediction, evidence: Evidence) -> Iterator[str]:
    about = f"{mechanism.id} predicts {quoted(prediction.measurement)} {prediction.expect}"
    if prediction.expect == "becomes":
        if prediction.value is None:
            yield f"{about}, but no value; give the value it becomes."
        elif prediction.measurement.startswith("row[") and prediction.value not in _MEASURED_STATUSES:
            yield f"{about} {quoted(prediction.value)}; a row becomes one of: {', '.join(_MEASURED_STATUSES)}."
    elif prediction.expect in ("up", "down"):
        observed = take(evidence, prediction.measurement)
        if observed.taken and not finite_number(observed.value):
            yield (
                f"{about}, but on the observed run it is {quoted(observed.value)}, which has no up or down; "
                "use same, different or becomes."
            )


def discrimination(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The first mechanism and each rival exclude each other somewhere: else no rerun could support the first."""
    if not 2 <= len(proposal.mechanisms) <= 3:
        return
    first, *rivals = proposal.mechanisms
    said = {prediction.measurement: prediction for prediction in first.predictions}
    for rival in rivals:
        theirs = {prediction.measurement: prediction for prediction in rival.predictions}
        if any(exclusive(said[key], theirs[key]) for key in said if key in theirs):
            continue
        yield (
            f"{first.id} and {rival.id} exclude each other on no measurement, so no rerun can tell them apart; "
            f"{_separating(proposal, evidence, rival)}"
        )


def _separating(proposal: Proposal, evidence: Evidence, rival: Mechanism) -> str:
    """Which measurements could part the two, among those that the experiment is able to move."""
    entry = CATALOGUE.get(proposal.experiment.name) if proposal.experiment else None
    if entry is None:
        return "predict same for one and a change for the other."
    rows = [proposal.first_row, *(row.id for row in evidence.rows if row.boundary == rival.boundary)]
    keys = [f"row[{row}]" for row in dict.fromkeys(rows) if row is not None] if "row" in entry.can_move else []
    keys += [f"{name}[*]" for name in ("moved", "delta.net", "gradient.first") if name in entry.can_move]
    keys += [name for name in ("loss.first", "lr.first", "steps", "loss.last") if name in entry.can_move]
    taken = [key for key in keys if take(evidence, key).taken]
    return f"of what {entry.name} can move, these may part them: {listed(taken[:MOST_SUGGESTED])}."


def exclusive(one: Prediction, other: Prediction) -> bool:
    """Whether no single outcome of a measurement can fulfil both predictions."""
    kinds = {one.expect, other.expect}
    if kinds == {"becomes"}:
        return not agrees(one.value, other.value)
    return kinds == {"up", "down"} or ("same" in kinds and len(kinds) == 2)
