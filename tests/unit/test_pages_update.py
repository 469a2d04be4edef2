"""The pages for rates, gradients and steps: what each offers, on what it keeps silent, and that the contract holds."""

from __future__ import annotations

from typing import Any

import pytest
from fault_samples import NAMES, motionless, reruns, run, still, treated

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations
from weaklink.agent.proposal import Proposal
from weaklink.agent.verifier import judge
from weaklink.collector.evidence import Evidence, Row, Site, Status, Value

# What a step comes after: measured in every run, and out of reach of these experiments.
PAST = ["output.first", "loss.first", "gradient.first[*]", "steps"]


def sample(row: str, values: dict[str, Value], status: Status = "fail", basis: str = "exact") -> Evidence:
    evidence = run(row, status, values)
    if status == "fail":
        evidence.rows[0] = Row.model_validate(evidence.rows[0].model_dump() | {"basis": basis})
    return evidence


def advise(evidence: Evidence) -> Proposal:
    proposal = Playbook().advise(evidence, "", [])
    assert violations(proposal, evidence) == []
    return proposal


STILL = {"still_from": 52, "highest": 0.004}
CASES: list[tuple[str, dict[str, Any], str, dict[str, Value], list[str]]] = [
    (
        "UPDATE/schedule",
        {**STILL, "steps": 400, "scheduler_steps": 3200, "passes": 1},
        "step_scheduler_per_step",
        {"n": 1},
        ["rate_wrong", "update_lost"],
    ),
    (
        "UPDATE/schedule",
        {**STILL, "steps": 320, "scheduler_steps": 320, "passes": 8},
        "step_scheduler_per_step",
        {"n": 40},
        ["rate_wrong", "update_lost"],
    ),
    (
        "UPDATE/schedule",
        {**STILL, "steps": 320, "scheduler_steps": 320, "passes": 1},
        "hold_scheduler",
        {},
        ["rate_wrong", "update_lost"],
    ),
    (
        "UPDATE/schedule",
        {"highest": 1e-4, "peak": 3e-3, "peak_after": 200, "scheduler_steps": 12, "steps": 480},
        "step_scheduler_per_step",
        {"n": 1},
        ["rate_wrong", "update_lost"],
    ),
    (
        "UPDATE/schedule",
        {"highest": 1e-5, "peak": 3e-3, "peak_after": 20_000, "scheduler_steps": 300, "steps": 300},
        "hold_scheduler",
        {},
        ["rate_wrong", "other"],
    ),
    (
        "UPDATE/clipping",
        {"sampled": 10, "acted": 10, "scale": 65536.0, "limit": 1.0},
        "unscale_before_clipping",
        {},
        ["clipping_misordered", "rate_wrong"],
    ),
    (
        "UPDATE/clipping",
        {"sampled": 10, "acted": 10, "wasted": 10, "norm": 41.0, "limit": 0.5},
        "clip_grad_norm",
        {"max": 0.5},
        ["clipping_misordered", "rate_wrong"],
    ),
    ("UPDATE/resolution", {"still": 287, "entries": 288}, "float32_steps", {}, ["update_lost", "rate_wrong"]),
    ("UPDATE/returned", {"returns": 4, "moved": 6}, "keep_stepped", {}, ["update_lost", "other"]),
    ("UPDATE/restored", {"taken": 5, "loaded": 12}, "copy_states", {}, ["update_lost", "other"]),
    ("UPDATE/state", {"tensors": 6}, "reset_optimizer_state", {}, ["optimizer_state_wrong", "rate_wrong"]),
    ("UPDATE/direction", {"up": 1}, "minimize", {}, ["wrong_term_or_sign", "other"]),
]


@pytest.mark.parametrize(("row", "values", "name", "parameters", "mechanisms"), CASES)
def test_the_experiment_of_each_row(
    row: str, values: dict[str, Any], name: str, parameters: dict[str, Value], mechanisms: list[str]
) -> None:
    proposal = advise(sample(row, values))
    assert proposal.experiment is not None, proposal.question
    assert (proposal.experiment.name, proposal.experiment.parameters) == (name, parameters)
    assert [mechanism.id for mechanism in proposal.mechanisms] == mechanisms
    assert proposal.must_change[0] == f"row[{row}]"
    assert proposal.must_stay_unchanged == PAST
    assert proposal.repair is not None


@pytest.mark.parametrize(
    ("values", "name", "parameters"),
    [
        ({"highest": 0.0, "built_with": 0.1}, "hold_scheduler", {}),
        ({"highest": 0.0, "built_with": None}, "set_lr", {"lr": 1e-3}),
        ({"highest": 0.0, "built_with": 0.0}, "set_lr", {"lr": 1e-3}),
    ],
)
def test_a_rate_of_zero_is_held_against_the_one_that_the_optimizer_was_given(
    values: dict[str, Any], name: str, parameters: dict[str, Value]
) -> None:
    evidence = still(sample("UPDATE/lr", values), NAMES)
    evidence.steps[0].lr = [0.0]
    proposal = advise(evidence)
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == (name, parameters)
    assert proposal.must_change == ["row[UPDATE/lr]", "lr.first", "moved[*]", "delta.net[*]"]


def test_a_rate_next_to_zero_is_scaled_as_a_copy_of_the_run_was() -> None:
    proposal = advise(sample("UPDATE/lr", {"declared": 6e-8, "factor": 1000.0, "highest": 6e-8}, "suspected"))
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == ("scale_lr", {"factor": 1000.0})


def test_a_rate_at_which_a_copy_of_the_run_learns_nothing_is_scaled_down() -> None:
    values: dict[str, Value] = {"nonfinite_from_step": None, "outgrown_steps": 0, "factor": 0.1}
    proposal = advise(sample("UPDATE/scale", values, basis="controlled"))
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == ("scale_lr", {"factor": 0.1})
    assert [mechanism.id for mechanism in proposal.mechanisms] == ["rate_wrong", "initial_weights_wrong"]


def never_stepped() -> Evidence:
    evidence = sample("UPDATE/steps", {"backwards": 756, "asked": 0, "executed": 0, "cleared": 11})
    evidence.outcome.steps = evidence.outcome.steps_asked = 0
    evidence.steps.clear()
    evidence.rows.append(Row(id="DEPENDENCY/reached", status="pass", text="6/6"))
    for record in evidence.parameters:
        record.moved = record.delta_net = None
    return evidence


def test_a_script_that_never_steps_is_made_to() -> None:
    proposal = advise(never_stepped())
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == ("step_after_backward", {"n": 1})
    assert proposal.must_change == ["row[UPDATE/steps]", "steps", "loss.last"]


def test_a_step_that_finds_no_gradient_waits_for_the_next_backward() -> None:
    evidence = motionless()
    found = evidence.rows[0].model_dump() | {
        "values": {**evidence.rows[0].values, "without_gradient": 10},
        "where": [Site(file="train.py", line=14, what="step called")],
    }
    evidence.rows[0] = Row.model_validate(found)
    evidence.rows.append(Row(id="DEPENDENCY/reached", status="pass", text="6/6"))
    proposal = advise(evidence)
    assert proposal.experiment is not None
    assert proposal.experiment.name == "defer_step_until_backward"
    assert proposal.experiment.parameters == {"site": "train.py:14"}
    assert [mechanism.id for mechanism in proposal.mechanisms] == ["step_before_backward", "update_lost"]


@pytest.mark.parametrize(
    ("row", "values", "status"),
    [
        ("UPDATE/clipping", {"zeroed": ["lora_b"], "steps": 10}, "fail"),  # by hand: no function of torch's to reorder
        ("UPDATE/clipping", {"wasted": 10, "norm": None, "limit": 1.0}, "fail"),  # clipped by value
        ("UPDATE/lr", {"declared": 6e-8, "highest": 6e-8}, "suspected"),
        ("UPDATE/steps", {"backwards": 12, "asked": 0, "executed": 0}, "suspected"),  # no optimizer was built
        ("UPDATE/scale", {"nonfinite_from_step": 3}, "fail"),
    ],
)
def test_where_the_run_offers_too_little_the_operator_is_asked(
    row: str, values: dict[str, Any], status: Status
) -> None:
    proposal = advise(sample(row, values, status, basis="controlled" if row == "UPDATE/scale" else "exact"))
    assert (proposal.outcome, proposal.experiment) == ("ask_operator", None)


@pytest.mark.parametrize(("row", "values", "name", "parameters", "mechanisms"), CASES)
def test_the_rival_is_refuted_where_the_row_flips_and_the_lead_where_it_stays(
    row: str, values: dict[str, Any], name: str, parameters: dict[str, Value], mechanisms: list[str]
) -> None:
    control = sample(row, values)
    proposal = advise(control)
    cured = treated(sample(row, values), "pass", last=0.1)
    cured.steps[-1].lr = [0.5]
    for record in cured.parameters:
        record.delta_net = 4.0
    verdict = judge(proposal, reruns(control, cured))
    assert [outcome.status for outcome in verdict.mechanisms] == ["supported", "refuted"]
    same = judge(proposal, reruns(control, treated(sample(row, values), None)))
    assert same.mechanisms[0].status == "refuted"


def test_what_was_declared_to_be_trained_and_stands_still_gets_a_plain_step() -> None:
    values: dict[str, Value] = {"declared": 6, "still": list(NAMES)}
    proposal = advise(still(sample("UPDATE/declared", values, basis="declared"), NAMES))
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == (
        "fresh_optimizer",
        {"kind": "SGD", "lr": 0.01},
    )
    assert [mechanism.id for mechanism in proposal.mechanisms] == ["update_lost", "rate_wrong"]
