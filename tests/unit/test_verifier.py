"""Verdicts on rows: each way an experiment can end, from the evidence of its reruns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.proposal import Direction, Mechanism, Prediction, Proposal
from weaklink.agent.verdict import MechanismStatus, PredictionStatus
from weaklink.agent.verifier import Reruns, judge, status_of
from weaklink.collector.evidence import Evidence, InterventionReport, Row, Series, Value

Change = Callable[[Evidence], None]


def flat(last: float = 0.683606) -> Evidence:
    evidence = stale_head_evidence()
    evidence.losses = Series(index=list(range(1, 51)), value=[0.683606] * 49 + [last])
    return evidence


def replace_row(evidence: Evidence, row_id: str, status: str) -> None:
    old = evidence.row(row_id)
    assert old is not None
    basis = "exact" if status == "fail" else None
    new = Row.model_validate(old.model_dump() | {"status": status, "basis": basis, "downstream": False})
    evidence.rows[evidence.rows.index(old)] = new


def treated() -> Evidence:
    """The control with the head owned: it moves, the rows flip, the loss falls, the frozen part stays."""
    evidence = flat()
    evidence.losses = Series(index=list(range(1, 51)), value=[0.683606 - 0.005 * n for n in range(50)])
    evidence.intervention = InterventionReport(name="own_missing_parameters", applied=True, changed=["head.weight"])
    for record in evidence.parameters:
        if record.in_model and record.requires_grad:
            record.owned = record.moved = True
            record.delta_net = 1.5
    for row_id in ("OWNERSHIP/owned", "OWNERSHIP/stale", "UPDATE/moved"):
        replace_row(evidence, row_id, "pass")
    return evidence


def placebo() -> Evidence:
    evidence = flat(last=0.683606 + 1e-9)
    evidence.intervention = InterventionReport(name="placebo", applied=True)
    return evidence


@pytest.fixture
def proposal() -> Proposal:
    return Playbook().advise(stale_head_evidence(), "", [])


def reruns(**changes: Any) -> Reruns:
    runs: dict[str, Any] = {
        "observed": flat(),
        "control": flat(),
        "control_again": flat(),
        "placebo": placebo(),
        "treatment": treated(),
    }
    return Reruns(**(runs | changes))


def lead(proposal: Proposal, runs: Reruns) -> tuple[MechanismStatus, str]:
    outcome = judge(proposal, runs).mechanisms[0]
    return outcome.status, outcome.reason


def changed(change: Change, evidence: Evidence | None = None) -> Evidence:
    evidence = evidence or treated()
    change(evidence)
    return evidence


def test_supported_when_the_row_flips_everything_held_and_the_rivals_failed(proposal: Proposal) -> None:
    verdict = judge(proposal, reruns())
    assert [(m.id, m.status) for m in verdict.mechanisms] == [
        ("optimizer_holds_old_objects", "supported"),
        ("rate_wrong", "refuted"),
        ("frozen_by_accident", "refuted"),
    ]
    assert verdict.controls_agree
    assert verdict.observed_prefix_agrees
    assert status_of(verdict, proposal).model_dump() == {
        "cause": "supported",
        "action": "proposed",
        "recovery": "not attempted",
    }


def test_a_better_loss_alone_supports_nothing(proposal: Proposal) -> None:
    run = flat()
    run.losses = treated().losses
    run.intervention = treated().intervention
    status, reason = lead(proposal, reruns(treatment=run))
    assert status == "refuted"
    assert "OWNERSHIP/owned stays" in reason


def test_refuted_when_the_predicted_row_does_not_follow(proposal: Proposal) -> None:
    """The optimizer holds the head now and still nothing moves: a rate of zero looks like this."""

    def still(evidence: Evidence) -> None:
        replace_row(evidence, "UPDATE/moved", "fail")
        evidence.losses = flat().losses
        for record in evidence.parameters:
            record.moved, record.delta_net = False, 0.0 if record.in_model else None

    verdict = judge(proposal, reruns(treatment=changed(still)))
    assert [(m.id, m.status) for m in verdict.mechanisms] == [
        ("optimizer_holds_old_objects", "refuted"),
        ("rate_wrong", "inconclusive"),
        ("frozen_by_accident", "refuted"),
    ]
    assert status_of(verdict, proposal).cause == "refuted"
    assert status_of(verdict, proposal).action == "none"


def test_refuted_when_a_rival_was_right_about_the_loss(proposal: Proposal) -> None:
    def same_loss(evidence: Evidence) -> None:
        evidence.losses = flat().losses

    verdict = judge(proposal, reruns(treatment=changed(same_loss)))
    assert [(m.id, m.status) for m in verdict.mechanisms] == [
        ("optimizer_holds_old_objects", "refuted"),
        ("rate_wrong", "refuted"),
        ("frozen_by_accident", "inconclusive"),
    ]


def test_a_rival_is_never_supported_by_anothers_experiment(proposal: Proposal) -> None:
    for treatment in (treated(), flat(), changed(lambda e: setattr(e, "losses", flat().losses))):
        rivals = judge(proposal, reruns(treatment=treatment)).mechanisms[1:]
        assert all(outcome.status != "supported" for outcome in rivals)


def test_void_when_something_changed_that_had_to_stay(proposal: Proposal) -> None:
    def frozen_part_moves(evidence: Evidence) -> None:
        evidence.parameters[0].delta_net = 1e-12

    status, reason = lead(proposal, reruns(treatment=changed(frozen_part_moves)))
    assert status == "void"
    assert "delta.net[features.*]" in reason


def test_not_applicable_when_nothing_was_changed(proposal: Proposal) -> None:
    def nothing(evidence: Evidence) -> None:
        assert evidence.intervention is not None
        evidence.intervention.applied = False

    verdict = judge(proposal, reruns(treatment=changed(nothing)))
    assert {m.status for m in verdict.mechanisms} == {"not_applicable"}
    assert {p.status for p in verdict.predictions} == {"not_measured"}


@pytest.mark.parametrize("lost", ["control", "control_again", "treatment"])
def test_inconclusive_when_a_rerun_left_nothing(proposal: Proposal, lost: str) -> None:
    verdict = judge(proposal, reruns(**{lost: None}))
    assert {m.status for m in verdict.mechanisms} == {"inconclusive"}


@pytest.mark.parametrize("ended", ["raised", "killed", "deadline"])
def test_inconclusive_when_only_the_treated_rerun_broke_off(proposal: Proposal, ended: str) -> None:
    status, reason = lead(proposal, reruns(treatment=changed(lambda e: setattr(e.outcome, "ended", ended))))
    assert status == "inconclusive"
    assert ended in reason


def test_the_same_deadline_for_control_and_treatment_is_no_difference(proposal: Proposal) -> None:
    runs = {
        role: changed(lambda e: setattr(e.outcome, "ended", "deadline"), evidence)
        for role, evidence in (("control", flat()), ("control_again", flat()), ("treatment", treated()))
    }
    assert lead(proposal, reruns(**runs))[0] == "supported"


def test_without_a_placebo_that_changed_something_there_is_no_floor_and_no_verdict(proposal: Proposal) -> None:
    idle = changed(lambda e: setattr(e.intervention, "applied", False), placebo())
    for without in (None, idle):
        status, reason = lead(proposal, reruns(placebo=without))
        assert status == "inconclusive"
        assert "noise floor" in reason


def test_two_deadlines_at_different_steps_compare_nothing(proposal: Proposal) -> None:
    def cut(evidence: Evidence, at: int) -> Evidence:
        evidence.outcome.ended, evidence.outcome.backwards = "deadline", at
        return evidence

    runs = {"control": cut(flat(), 50), "control_again": cut(flat(), 50), "treatment": cut(treated(), 49)}
    status, reason = lead(proposal, reruns(**runs))
    assert status == "inconclusive"
    assert "deadline" in reason


def test_controls_that_end_differently_decide_nothing(proposal: Proposal) -> None:
    crashed = changed(lambda e: setattr(e.outcome, "ended", "killed"), flat())
    assert lead(proposal, reruns(control_again=crashed))[0] == "inconclusive"


@pytest.mark.parametrize(("drift", "held"), [(0.0005, True), (0.05, False)])
def test_a_change_must_exceed_ten_times_the_floor(proposal: Proposal, drift: float, held: bool) -> None:
    """The treated mean of the last ten losses lies 0.22 below the control's."""
    moving = placebo()
    moving.losses = Series(index=moving.losses.index, value=[v + drift for v in moving.losses.value])
    verdict = judge(proposal, reruns(placebo=moving))
    outcome = next(p for p in verdict.predictions if p.measurement == "loss.last")
    assert outcome.floor == pytest.approx(drift)
    assert (outcome.status == "held") is held


def test_controls_that_differ_are_named_and_judged_within_their_spread(proposal: Proposal) -> None:
    noisy = flat()
    noisy.losses = Series(index=noisy.losses.index, value=[v + 1e-6 for v in noisy.losses.value])
    verdict = judge(proposal, reruns(control_again=noisy))
    assert not verdict.controls_agree
    assert set(verdict.nondeterminism) == {"loss.first", "loss.last"}
    assert next(s.equal for s in verdict.stays if s.measurement == "loss.first") is True
    assert verdict.mechanisms[0].status == "supported"


def test_a_hash_that_varies_by_itself_is_not_measured(proposal: Proposal) -> None:
    noisy = flat()
    noisy.fingerprint.outputs = "f" * 64
    verdict = judge(proposal, reruns(control_again=noisy))
    assert verdict.nondeterminism == ["output.first"]
    outcome = next(p for p in verdict.predictions if p.measurement == "output.first")
    assert outcome.status == "not_measured"
    assert verdict.mechanisms[0].status == "inconclusive"


def test_an_observed_run_that_began_otherwise_is_told(proposal: Proposal) -> None:
    other = flat()
    other.losses = Series(index=other.losses.index, value=[0.7, *other.losses.value[1:]])
    assert judge(proposal, reruns(observed=other)).observed_prefix_agrees is False


def test_a_loss_that_turns_nan_did_not_fall(proposal: Proposal) -> None:
    def explode(evidence: Evidence) -> None:
        evidence.losses.value[-1] = float("nan")

    outcomes = judge(proposal, reruns(treatment=changed(explode))).predictions
    assert next(p.status for p in outcomes if p.measurement == "loss.last") == "failed"


# --- Rows that do not flip, and numbers that are none -----------------------------------------------------------------


def test_a_control_that_does_not_show_the_row_refutes_nothing(proposal: Proposal) -> None:
    """The rerun stopped before the fault appeared."""
    healthy = changed(lambda e: replace_row(e, "OWNERSHIP/owned", "pass"), flat())
    status, reason = lead(proposal, reruns(control=healthy, control_again=healthy, treatment=treated()))
    assert status == "inconclusive"
    assert "does not show OWNERSHIP/owned diverge" in reason


def test_a_row_that_cannot_be_read_any_more_refutes_nothing(proposal: Proposal) -> None:
    def unread(evidence: Evidence) -> None:
        row = evidence.row("OWNERSHIP/owned")
        assert row is not None
        row.status, row.basis, row.reason = "not_measured", None, "no step was sampled"

    status, reason = lead(proposal, reruns(treatment=changed(unread)))
    assert status == "inconclusive"
    assert "does not measure OWNERSHIP/owned" in reason


def test_a_row_that_neither_diverges_nor_passes_refutes_only_where_a_rival_was_right(proposal: Proposal) -> None:
    def half_way(evidence: Evidence) -> None:
        replace_row(evidence, "OWNERSHIP/owned", "evidence")

    status, reason = lead(proposal, reruns(treatment=changed(half_way)))
    assert (status, reason) == ("inconclusive", "OWNERSHIP/owned no longer diverges, and does not pass either")
    same_loss = changed(lambda e: setattr(e, "losses", flat().losses), changed(half_way))
    assert lead(proposal, reruns(treatment=same_loss))[0] == "refuted"  # frozen_by_accident said so


def exploded() -> Evidence:
    return flat(last=math.nan)


def judged(expect: Direction, value: Value = None, **runs: Any) -> PredictionStatus:
    """What becomes of one prediction on the last losses."""
    prediction = Prediction(measurement="loss.last", expect=expect, value=value)
    mechanism = Mechanism(id="rate_wrong", boundary="UPDATE", explanation="the rate", predictions=[prediction])
    made = Proposal(outcome="experiment", first_boundary="OWNERSHIP", first_row="OWNERSHIP/owned")
    made.mechanisms = [mechanism]
    return judge(made, reruns(**runs)).predictions[0].status


def with_placebo(last: float) -> Evidence:
    evidence = flat(last=last)
    evidence.intervention = InterventionReport(name="placebo", applied=True)
    return evidence


def treated_to(last: float) -> Evidence:
    evidence = treated()
    evidence.losses = flat(last=last).losses
    return evidence


@pytest.mark.parametrize(
    ("expect", "value", "last", "status"),
    [
        ("different", None, 0.1, "held"),
        ("same", None, 0.1, "failed"),
        ("down", None, 0.1, "failed"),
        ("up", None, 0.1, "failed"),
        ("different", None, math.nan, "failed"),
        ("same", None, math.nan, "held"),
        ("becomes", math.nan, math.nan, "held"),
        ("becomes", math.nan, 0.1, "failed"),
    ],
)
def test_a_control_that_ends_in_nan(expect: Direction, value: Value, last: float, status: PredictionStatus) -> None:
    runs: dict[str, Any] = {
        "control": exploded(),
        "control_again": exploded(),
        "placebo": with_placebo(math.nan),
    }
    assert judged(expect, value, **runs, treatment=treated_to(last)) == status


@pytest.mark.parametrize(
    ("expect", "status"), [("different", "held"), ("same", "failed"), ("up", "failed"), ("down", "failed")]
)
def test_a_treatment_that_ends_in_nan(expect: Direction, status: PredictionStatus) -> None:
    assert judged(expect, treatment=treated_to(math.nan)) == status


@pytest.mark.parametrize("expect", ["different", "same", "up", "down"])
def test_a_run_that_explodes_by_itself_now_and_then_has_no_floor_to_exceed(expect: Direction) -> None:
    """The placebo, or the second control, ends finite where the control does not: nothing meaningful did that."""
    steady: dict[str, Any] = {"control": exploded(), "control_again": exploded(), "placebo": with_placebo(0.5)}
    assert judged(expect, **steady, treatment=treated_to(0.1)) == "not_measured"
    noisy: dict[str, Any] = {"control": exploded(), "control_again": flat(), "placebo": with_placebo(math.nan)}
    assert judged(expect, **noisy, treatment=treated_to(0.1)) == "not_measured"


def test_what_must_stay_is_not_compared_where_the_controls_do_not_agree_on_finite(proposal: Proposal) -> None:
    proposal.must_stay_unchanged = ["loss.last"]
    verdict = judge(proposal, reruns(control=exploded(), placebo=with_placebo(math.nan)))
    assert verdict.stays[0].equal is None


def test_mechanisms_that_agree_leave_the_lead_inconclusive(proposal: Proposal) -> None:
    twin = Mechanism(id="other", boundary="OWNERSHIP", explanation="says the same", predictions=[])
    twin.predictions = [Prediction.model_validate(p.model_dump()) for p in proposal.mechanisms[0].predictions]
    proposal.mechanisms = [proposal.mechanisms[0], twin]
    status, reason = lead(proposal, reruns())
    assert status == "inconclusive"
    assert "other" in reason
