"""The verdict: predictions against measurements, mechanisms by their predictions. Rows decide, never a better loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from weaklink.agent.freeze import FLOOR_FACTOR
from weaklink.agent.measurements import Measured, measured_keys, take
from weaklink.agent.proposal import Mechanism, Prediction, Proposal
from weaklink.agent.verdict import (
    IncidentStatus,
    MechanismOutcome,
    MechanismStatus,
    PredictionOutcome,
    PredictionStatus,
    StayOutcome,
    Verdict,
)
from weaklink.collector.evidence import DIVERGING, Evidence, Status, Value


@dataclass(frozen=True)
class Reruns:
    """The evidence of every rerun of one experiment; None where a rerun left none."""

    observed: Evidence
    control: Evidence | None
    control_again: Evidence | None
    placebo: Evidence | None
    treatment: Evidence | None


def judge(proposal: Proposal, reruns: Reruns) -> Verdict:
    """Judge every prediction and every mechanism of an accepted experiment.

    The floor of a number is the larger of control against control and placebo against control; `up`, `down` and
    `different` must exceed it by `FLOOR_FACTOR`. `same` is bitwise where the controls agree bitwise, else within it.
    From a finite number to one that is not is different, whatever the floor; NaN has no up or down.
    """
    if reruns.control is None or reruns.control_again is None or reruns.treatment is None:
        lost = "control" if reruns.control is None or reruns.control_again is None else "treated"
        return unjudged(proposal, "inconclusive", f"a {lost} rerun left nothing to compare", applied=False)
    report = reruns.treatment.intervention
    if report is None or not report.applied:
        text = "the experiment found nothing to change in the rerun"
        return unjudged(proposal, "not_applicable", text, applied=False)
    keys = measured_keys(proposal)
    unstable = [key for key in keys if not _bitwise(take(reruns.control, key), take(reruns.control_again, key))]
    for name, run in (("second control", reruns.control_again), ("treated rerun", reruns.treatment)):
        if (ended := _ended_otherwise(name, run, reruns.control, proposal.first_row)) is not None:
            return unjudged(proposal, "inconclusive", ended, applied=True)
    if reruns.placebo is None or reruns.placebo.intervention is None or not reruns.placebo.intervention.applied:
        text = "the placebo changed nothing, so there is no noise floor"
        return unjudged(proposal, "inconclusive", text, applied=True)
    outcomes = [_judge_one(m, p, reruns, unstable) for m in proposal.mechanisms for p in m.predictions]
    stays = [_judge_stay(key, reruns, unstable) for key in proposal.must_stay_unchanged]
    mechanisms = _judge_mechanisms(proposal, reruns, outcomes, stays)
    return Verdict(
        controls_agree=not unstable,
        observed_prefix_agrees=_prefix_agrees(reruns.observed, reruns.control),
        applied=True,
        nondeterminism=unstable,
        predictions=outcomes,
        stays=stays,
        mechanisms=mechanisms,
        text=_summary(mechanisms),
    )


def status_of(verdict: Verdict, proposal: Proposal) -> IncidentStatus:
    """Cause and action after the verdict; recovery is never decided here.

    A mechanism may hold, and still nobody knows whether it was meant: while the operator is asked, the cause is
    suspected.
    """
    statuses = {outcome.status for outcome in verdict.mechanisms}
    lead = verdict.mechanisms[0].status if verdict.mechanisms else "not_tested"
    cause = "supported" if lead == "supported" else "refuted" if lead == "refuted" else "suspected"
    if proposal.question and cause == "supported":
        cause = "suspected"
    if not statuses:
        cause = "unknown"
    proposed = proposal.repair is not None and cause == "supported"
    return IncidentStatus.model_validate({"cause": cause, "action": "proposed" if proposed else "none"})


def shows(run: Evidence | None, row_id: str | None) -> bool:
    """Whether that row diverges in this run."""
    return _status(run, row_id) in DIVERGING


def undecided(verdict: Verdict, proposal: Proposal) -> bool:
    """Whether more steps may decide what these did not.

    Nothing was changed yet, something was not measured, or the row flipped while a magnitude had not moved far enough:
    losses part later than rows do.
    """
    lead = verdict.mechanisms[0]
    flipped = any(
        outcome.mechanism == lead.id and outcome.status == "held"
        for outcome in verdict.predictions
        if outcome.measurement == f"row[{proposal.first_row}]"
    )
    return lead.status in ("inconclusive", "not_applicable") or (lead.status == "refuted" and flipped)


def unjudged(proposal: Proposal, status: MechanismStatus, reason: str, applied: bool = False) -> Verdict:
    """A verdict without a comparison: no prediction is measured, and every mechanism ends so, for this reason."""
    outcomes = [
        PredictionOutcome(
            mechanism=m.id,
            measurement=p.measurement,
            expect=p.expect,
            expected_value=p.value,
            status="not_measured",
            reason=reason,
        )
        for m in proposal.mechanisms
        for p in m.predictions
    ]
    return Verdict(
        controls_agree=False,
        observed_prefix_agrees=None,
        applied=applied,
        predictions=outcomes,
        mechanisms=[MechanismOutcome(id=m.id, status=status, reason=reason) for m in proposal.mechanisms],
        text=f"No verdict: {reason}.",
    )


def _ended_otherwise(name: str, run: Evidence, control: Evidence, row_id: str | None) -> str | None:
    """A rerun that raised, was killed or timed out while the control did not measures something else.

    Two that a deadline cut, at different steps, cannot be compared either. Where the row under trial is the exception
    itself, its going away is what is tried.
    """
    before, after = control.outcome, run.outcome
    broken = ("killed", "raised", "deadline", "interrupted")
    tried = _raised_at(control, row_id)
    if before.ended != after.ended and (after.ended in broken or (before.ended in broken and not tried)):
        return f"the {name} ended differently from the control ({after.ended} instead of {before.ended})"
    if after.ended == "deadline" and before.backwards != after.backwards:
        return "the deadline cut the reruns at different steps: give them more time or a shorter horizon"
    return None


def _raised_at(run: Evidence, row_id: str | None) -> bool:
    """Whether the exception that ended a run is what a diverging row reports: it names the line that raised."""
    row = run.row(row_id) if row_id is not None else None
    raised = run.outcome.raised
    if raised is None or raised.where is None or row is None or not row.diverges:
        return False
    return raised.where.place in [site.place for site in row.where]


def _bitwise(one: Measured, other: Measured) -> bool:
    if one.taken != other.taken:
        return False
    return not one.taken or _equal(one.value, other.value)


def _equal(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _distance(one: Measured, other: Measured) -> float | None:
    a, b = _number(one.value), _number(other.value)
    if not (one.taken and other.taken) or a is None or b is None:
        return None
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b)
    return 0.0 if _equal(a, b) else math.inf


def _floor(key: str, reruns: Reruns) -> float | None:
    """How far a measurement moves when nothing meaningful changed: without bound where it turns non-finite by itself.

    None for what is no number.
    """
    if reruns.control is None:
        return None
    control = take(reruns.control, key)
    others = [run for run in (reruns.control_again, reruns.placebo) if run is not None]
    distances = [_distance(control, take(run, key)) for run in others]
    known = [distance for distance in distances if distance is not None]
    return max(known) if known else None


def _judge_one(mechanism: Mechanism, prediction: Prediction, reruns: Reruns, unstable: list[str]) -> PredictionOutcome:
    assert reruns.control is not None
    assert reruns.treatment is not None
    key = prediction.measurement
    control, treatment = take(reruns.control, key), take(reruns.treatment, key)
    floor = _floor(key, reruns)
    status: PredictionStatus = "not_measured"
    reason = _incomparable(control, treatment, floor, key in unstable)
    if reason is None:
        held = _holds(prediction, control.value, treatment.value, floor or 0.0, key in unstable)
        status = "held" if held else "failed"
    return PredictionOutcome(
        mechanism=mechanism.id,
        measurement=key,
        expect=prediction.expect,
        expected_value=prediction.value,
        control=control.value,
        treatment=treatment.value,
        floor=floor,
        status=status,
        reason=reason,
    )


def _incomparable(control: Measured, treatment: Measured, floor: float | None, unstable: bool) -> str | None:
    """Why nothing can be said of this measurement, or None."""
    if not control.taken or not treatment.taken:
        return control.reason or treatment.reason
    if unstable and _number(control.value) is None:
        return "the two controls differ here"
    if floor == math.inf:
        return "it turns non-finite, or stays finite, without any meaningful change"
    return None


def _holds(prediction: Prediction, control: Value, treatment: Value, floor: float, unstable: bool) -> bool:
    a, b = _number(control), _number(treatment)
    if prediction.expect == "becomes":
        if (wanted := _number(prediction.value)) is not None and b is not None:
            return _equal(wanted, b)
        return _equal(treatment, prediction.value)
    if a is None or b is None or isinstance(control, bool):
        return _equal(control, treatment) == (prediction.expect == "same")
    beyond = _beyond(a, b, floor)
    if prediction.expect == "same":
        return not beyond if unstable else _equal(a, b)
    if prediction.expect == "different":
        return beyond
    return beyond and (b > a if prediction.expect == "up" else b < a)


def _beyond(a: float, b: float, floor: float) -> bool:
    both = math.isfinite(a) and math.isfinite(b)
    return abs(b - a) > FLOOR_FACTOR * floor if both else not _equal(a, b)


def _judge_stay(key: str, reruns: Reruns, unstable: list[str]) -> StayOutcome:
    assert reruns.control is not None
    assert reruns.treatment is not None
    control, treatment = take(reruns.control, key), take(reruns.treatment, key)
    floor = _floor(key, reruns)
    if _incomparable(control, treatment, floor, key in unstable) is not None:
        return StayOutcome(measurement=key, control=control.value, treatment=treatment.value, equal=None)
    same = Prediction(measurement=key, expect="same")
    equal = _holds(same, control.value, treatment.value, floor or 0.0, key in unstable)
    return StayOutcome(measurement=key, control=control.value, treatment=treatment.value, equal=equal)


def _judge_mechanisms(
    proposal: Proposal, reruns: Reruns, outcomes: list[PredictionOutcome], stays: list[StayOutcome]
) -> list[MechanismOutcome]:
    by_id = {m.id: [o for o in outcomes if o.mechanism == m.id] for m in proposal.mechanisms}
    lead, rivals = proposal.mechanisms[0], proposal.mechanisms[1:]
    excluded = [rival.id for rival in rivals if any(o.status == "failed" for o in by_id[rival.id])]
    standing = [rival.id for rival in rivals if rival.id not in excluded]
    judged = [_judge_lead(lead.id, by_id[lead.id], reruns, proposal, stays, excluded, standing)]
    for rival in rivals:
        failed = [o.measurement for o in by_id[rival.id] if o.status == "failed"]
        if failed:
            judged.append(
                MechanismOutcome(id=rival.id, status="refuted", reason=f"its prediction failed: {_list(failed)}")
            )
        else:
            reason = "not excluded; only an experiment of its own could support it"
            judged.append(MechanismOutcome(id=rival.id, status="inconclusive", reason=reason))
    return judged


def _judge_lead(
    name: str,
    outcomes: list[PredictionOutcome],
    reruns: Reruns,
    proposal: Proposal,
    stays: list[StayOutcome],
    excluded: Sequence[str],
    standing: Sequence[str],
) -> MechanismOutcome:
    moved = [stay.measurement for stay in stays if stay.equal is False]
    unseen = [stay.measurement for stay in stays if stay.equal is None]
    failed = [o.measurement for o in outcomes if o.status == "failed"]
    unmeasured = [o.measurement for o in outcomes if o.status == "not_measured"]
    unflipped = _unflipped(proposal.first_row, reruns, bool(failed and standing))

    def outcome(status: MechanismStatus, reason: str) -> MechanismOutcome:
        return MechanismOutcome.model_validate({"id": name, "status": status, "reason": reason})

    if moved:
        return outcome("void", f"the rerun also changed what had to stay: {_list(moved)}")
    if unflipped is not None:
        return outcome(*unflipped)
    failed_rows = [key for key in failed if key.startswith("row[")]
    if failed_rows or (failed and standing):
        return outcome("refuted", f"its prediction failed: {_list(failed)}")
    if failed:
        return outcome("inconclusive", f"the row flips, but its prediction failed: {_list(failed)}")
    if unmeasured or unseen:
        return outcome("inconclusive", f"not measured: {_list([*unmeasured, *unseen])}")
    if standing:
        return outcome("inconclusive", f"its predictions held, and so did those of {', '.join(standing)}")
    return outcome(
        "supported",
        f"{proposal.first_row} flips to pass, all {len(outcomes)} predictions held, what had to stay is equal, and "
        f"{' and '.join(excluded)} predicted otherwise",
    )


def _unflipped(row_id: str | None, reruns: Reruns, rival_right: bool) -> tuple[MechanismStatus, str] | None:
    """What follows for the lead where its row does not flip from divergence to pass; None where it does.

    A row that still diverges refutes it. One that merely cannot be read any more, or that the control never showed,
    says nothing.
    """
    before, after = _status(reruns.control, row_id), _status(reruns.treatment, row_id)
    if before not in DIVERGING:
        return "inconclusive", f"within its steps the control does not show {row_id} diverge"
    if after in DIVERGING:
        return "refuted", f"the intervention applied, and {row_id} stays as it was"
    if after == "not_measured":
        return "inconclusive", f"the treated rerun does not measure {row_id}"
    if after == "evidence":
        status: MechanismStatus = "refuted" if rival_right else "inconclusive"
        return status, f"{row_id} no longer diverges, and does not pass either"
    return None


def _status(run: Evidence | None, row_id: str | None) -> Status:
    row = run.row(row_id) if run is not None and row_id is not None else None
    return row.status if row is not None else "not_measured"


def _prefix_agrees(observed: Evidence, control: Evidence) -> bool | None:
    """Whether observed run and control have the same losses, bit for bit, for as long as both went."""
    both = dict(zip(observed.losses.index, observed.losses.value, strict=True))
    pairs = [
        (both[index], value)
        for index, value in zip(control.losses.index, control.losses.value, strict=True)
        if index in both
    ]
    return all(_equal(a, b) for a, b in pairs) if pairs else None


def _list(keys: list[str]) -> str:
    return ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


def _summary(mechanisms: list[MechanismOutcome]) -> str:
    lead = mechanisms[0]
    rest = "; ".join(f"{m.id} {m.status}" for m in mechanisms[1:])
    return f"{lead.id} {lead.status}" + (f"; {rest}" if rest else "")
