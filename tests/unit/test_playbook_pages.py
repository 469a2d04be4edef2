"""The playbook's pages: the experiment each row gets, and what the judge makes of it, whichever mechanism is true."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from evidence_samples import parameter
from fault_samples import (
    FEATURES,
    NAMES,
    change,
    climbing,
    dead,
    detached,
    doubled,
    exploding,
    motionless,
    reruns,
    shuffled,
    still,
    treated,
)
from hypothesis import given
from hypothesis import strategies as st

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations
from weaklink.agent.proposal import Proposal
from weaklink.agent.verifier import judge, status_of
from weaklink.collector.evidence import Evidence, Value

Sample = Callable[[], Evidence]


def advise(evidence: Evidence) -> Proposal:
    return Playbook().advise(evidence, "", [])


# --- What each page offers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "name", "parameters", "mechanisms"),
    [
        (shuffled, "realign_targets", {}, ["pairing_broken", "label_convention"]),
        (doubled, "raw_scores_to_loss", {}, ["wrong_scores_to_loss", "other"]),
        (detached, "reattach", {"site": "train.py:31"}, ["graph_cut", "zero_gradient", "other"]),
        (
            dead,
            "reinitialize",
            {"module": "features.0", "scheme": "default", "seed": 0},
            ["zero_gradient", "signal_vanishes", "other"],
        ),
        (exploding, "scale_lr", {"factor": 1e-5}, ["rate_wrong", "nonfinite"]),
        (climbing, "scale_lr", {"factor": 1e-3}, ["rate_wrong", "wrong_term_or_sign"]),
        (motionless, "fresh_optimizer", {"kind": "SGD", "lr": 0.01}, ["update_lost", "rate_wrong"]),
    ],
)
def test_the_experiment_of_each_row(
    sample: Sample, name: str, parameters: dict[str, Value], mechanisms: list[str]
) -> None:
    proposal = advise(sample())
    assert violations(proposal, sample()) == []
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == (name, parameters)
    assert [mechanism.id for mechanism in proposal.mechanisms] == mechanisms
    assert f"row[{sample().rows[0].id}]" in proposal.must_change
    assert proposal.repair is not None
    assert advise(sample()) == proposal


@pytest.mark.parametrize(
    ("sample", "stays"),
    [
        (shuffled, ["input.first", "output.first", "parameters.first[*]", "moved[*]"]),
        (doubled, ["input.first", "output.first", "parameters.first[*]", "moved[*]"]),
        (detached, ["output.first", "loss.first", "gradient.first[head.*]", "owned[*]"]),
        (
            dead,
            ["input.first", "parameters.first[head.*]", "parameters.first[features.2.*]", "owned[*]", "lr.first"],
        ),
        (exploding, ["output.first", "loss.first", "gradient.first[*]", "moved[*]"]),
        (motionless, ["output.first", "loss.first", "gradient.first[*]", "steps", "lr.first"]),
    ],
)
def test_what_must_stay(sample: Sample, stays: list[str]) -> None:
    assert advise(sample()).must_stay_unchanged == stays


def test_what_must_change() -> None:
    row = "row[DEPENDENCY/reached]"
    assert advise(detached()).must_change == [row, "moved[features.*]", "delta.net[features.*]", "loss.last"]
    row = "row[GRADIENT/nonzero]"
    assert advise(dead()).must_change == [
        row,
        "loss.first",
        "moved[features.0.*]",
        "delta.net[features.0.*]",
        "loss.last",
    ]


@pytest.mark.parametrize(("last", "status"), [(0.2, "supported"), (0.9, "refuted")])
def test_a_climb_is_a_rate_only_where_a_smaller_one_falls(last: float, status: str) -> None:
    proposal = advise(climbing())
    treatment = treated(climbing(), last=last)
    treatment.steps[0].lr = [0.1]
    verdict = judge(proposal, reruns(climbing(), treatment))
    assert verdict.mechanisms[0].status == status


def test_a_step_that_finds_no_gradient_is_asked_about_and_no_other_optimizer_is_tried() -> None:
    proposal = advise(with_values(motionless, without_gradient=10))
    assert proposal.outcome == "ask_operator"
    assert "step_before_backward" in [mechanism.id for mechanism in proposal.mechanisms]


# --- Where a page asks instead ----------------------------------------------------------------------------------------


def without(sample: Sample, field: str) -> Evidence:
    evidence = sample()
    del evidence.rows[0].values[field]
    return evidence


def with_values(sample: Sample, **values: Value) -> Evidence:
    evidence = sample()
    evidence.rows[0].values.update(values)
    return evidence


def two_rates() -> Evidence:
    evidence = motionless()
    evidence.steps[0].lr = [0.01, 0.1]
    return evidence


def of_the_top(sample: Sample) -> Evidence:
    """A model without submodules: its parameters belong to no module with a name."""
    evidence = sample()
    evidence.parameters = [parameter("weight", [2], gradient="zero", always_zero=True, reached=True)]
    return evidence


@pytest.mark.parametrize(
    "evidence",
    [
        with_values(shuffled, agreement=0.0),
        without(shuffled, "agreement"),
        with_values(doubled, softmax_into_log_softmax=False),
        without(detached, "cut"),
        with_values(detached, cut=["train.py:31", "train.py:44"]),
        of_the_top(dead),
        with_values(exploding, ratio=math.inf),
        without(exploding, "ratio"),
        treated(exploding(), status=None, last=0.5),
        change(motionless(), NAMES[:1], owned=False),
        change(motionless(), NAMES[:1], gradient="zero"),
        two_rates(),
        change(dead(), NAMES, digest_first=None),
    ],
    ids=[
        "no target follows the rule",
        "no agreement",
        "another pair of scores",
        "no cut",
        "two cuts",
        "no module to draw anew",
        "an infinite step",
        "no size of the step",
        "the loss found back",
        "not owned",
        "without a gradient",
        "two rates",
        "nothing that the experiment could move stays",
    ],
)
def test_a_run_that_offers_too_little_is_asked_about(evidence: Evidence) -> None:
    proposal = advise(evidence)
    assert proposal.outcome == "ask_operator"
    assert proposal.question
    assert violations(proposal, evidence) == []


# --- Which module is dead ---------------------------------------------------------------------------------------------


def zeroed(*names: str) -> Evidence:
    evidence = dead()
    evidence.rows[0].values["zero"] = list(names)
    change(evidence, NAMES, gradient="nonzero", always_zero=False)
    return change(evidence, names, gradient="zero", always_zero=True)


@pytest.mark.parametrize(
    ("zero", "module"),
    [
        (FEATURES[:3], "features.0"),
        ((*FEATURES, "head.weight"), "features.2"),
        ((*FEATURES[:1], "features.0.bias", "head.weight"), "features.0"),
        (("head.weight", "head.bias"), "head"),
    ],
)
def test_the_dead_module_is_the_last_one_with_a_dead_bias(zero: tuple[str, ...], module: str) -> None:
    choice = advise(zeroed(*zero)).experiment
    assert choice is not None
    assert choice.parameters["module"] == module


def test_without_any_bias_the_last_dead_module_is_drawn() -> None:
    evidence = zeroed("features.0.weight", "features.2.weight")
    evidence.parameters = [record for record in evidence.parameters if not record.name.endswith("bias")]
    choice = advise(evidence).experiment
    assert choice is not None
    assert choice.parameters["module"] == "features.2"


def test_a_name_with_a_bracket_stays_a_name() -> None:
    evidence = dead()
    for record in evidence.parameters:
        record.name = record.name.replace("features.0", "features[0]")
    evidence.rows[0].values["zero"] = ["features[0].weight", "features[0].bias", "features.2.weight"]
    proposal = advise(evidence)
    assert proposal.experiment is not None
    assert proposal.experiment.parameters["module"] == "features[[]0]"
    assert "moved[features[[]0].*]" in proposal.must_change


# --- Details ----------------------------------------------------------------------------------------------------------


@given(st.floats(min_value=1.0, max_value=1e30))
def test_the_smaller_rate_makes_the_step_a_hundredth_at_most_by_the_fewest_powers_of_ten(ratio: float) -> None:
    choice = advise(with_values(exploding, ratio=ratio)).experiment
    assert choice is not None
    factor = choice.parameters["factor"]
    assert isinstance(factor, float)
    assert 0.001 * (1 - 1e-9) < ratio * factor <= 0.01 * (1 + 1e-9)
    assert factor in [float(f"1e-{power}") for power in range(2, 33)]


def test_parameters_that_move_already_need_not_begin_to() -> None:
    """Weight decay moves a parameter whose gradient is zero."""
    proposal = advise(change(dead(), NAMES, moved=True, delta_net=1.0))
    assert proposal.must_change == ["row[GRADIENT/nonzero]", "loss.first", "loss.last"]


def test_a_parameter_before_the_cut_may_gain_a_gradient() -> None:
    """The first layer has a second way to the loss: let through, the cut one adds to its gradient."""
    evidence = detached()
    change(evidence, FEATURES[:2], gradient="nonzero", reached=True, moved=True, gradient_digest_first="d" * 64)
    evidence.rows[0].values["missed"] = list(FEATURES[2:])
    assert "gradient.first[head.*]" in advise(evidence).must_stay_unchanged
    assert not any("features.0" in key or key == "gradient.first[*]" for key in advise(evidence).must_stay_unchanged)


def test_missed_parameters_that_no_optimizer_holds_have_a_rival_for_it() -> None:
    proposal = advise(change(detached(), FEATURES, owned=False))
    assert [mechanism.id for mechanism in proposal.mechanisms] == ["graph_cut", "not_in_optimizer", "other"]


# --- What the reruns decide -------------------------------------------------------------------------------------------


def attached(**fields: object) -> Evidence:
    return change(detached(), FEATURES, moved=True, delta_net=2.0, gradient="nonzero", reached=True, **fields)


def awake() -> Evidence:
    evidence = change(dead(), FEATURES[:3], moved=True, delta_net=2.0, gradient="nonzero", always_zero=False)
    evidence.losses.value[0] = 0.7
    return evidence


def realigned() -> Evidence:
    evidence = shuffled()
    evidence.fingerprint.targets = "4" * 64
    return evidence


def with_raw_scores() -> Evidence:
    evidence = doubled()
    evidence.losses.value[0] = 0.6935
    return evidence


def with_rate(rate: float) -> Evidence:
    evidence = exploding()
    evidence.steps[0].lr = [rate]
    return evidence


def stepping() -> Evidence:
    return change(motionless(), NAMES, moved=True, delta_net=2.0)


@pytest.mark.parametrize(
    ("sample", "treatment", "statuses"),
    [
        (shuffled, treated(realigned(), last=0.01), ["supported", "refuted"]),
        (shuffled, treated(realigned(), last=0.66), ["refuted", "inconclusive"]),
        (shuffled, treated(realigned(), status=None), ["refuted", "refuted"]),
        (doubled, treated(with_raw_scores(), last=0.0158), ["supported", "refuted"]),
        (doubled, treated(with_raw_scores(), last=0.5), ["refuted", "inconclusive"]),
        (detached, treated(attached(), last=0.01), ["supported", "refuted", "refuted"]),
        (detached, treated(attached(), last=0.4), ["refuted", "refuted", "inconclusive"]),
        (detached, treated(detached()), ["refuted", "inconclusive", "refuted"]),
        (detached, treated(detached(), status=None), ["refuted", "refuted", "refuted"]),
        (dead, treated(awake(), last=0.1), ["supported", "refuted", "refuted"]),
        (dead, treated(awake(), last=0.8), ["refuted", "refuted", "inconclusive"]),
        (dead, treated(dead(), status=None), ["refuted", "inconclusive", "refuted"]),
        (exploding, treated(with_rate(0.1), last=0.0949), ["supported", "refuted"]),
        (exploding, treated(with_rate(0.1), status="evidence"), ["refuted", "inconclusive"]),
        (exploding, treated(with_rate(0.1), status=None), ["refuted", "refuted"]),
        (motionless, treated(stepping(), last=0.3), ["supported", "refuted"]),
        (motionless, treated(motionless(), status=None), ["refuted", "inconclusive"]),
    ],
)
def test_the_verdict_follows_the_mechanism_that_is_true(
    sample: Sample, treatment: Evidence, statuses: list[str]
) -> None:
    proposal = advise(sample())
    verdict = judge(proposal, reruns(sample(), treatment))
    assert [mechanism.status for mechanism in verdict.mechanisms] == statuses, verdict.mechanisms
    assert all(stay.equal for stay in verdict.stays)
    assert status_of(verdict, proposal).action == ("proposed" if statuses[0] == "supported" else "none")


@pytest.mark.parametrize(
    ("sample", "treatment"),
    [
        (shuffled, still(treated(realigned(), last=0.01), NAMES[:1])),
        (doubled, change(treated(with_raw_scores(), last=0.01), NAMES[:1], digest_first="e" * 64)),
        (detached, treated(attached(), last=0.01)),
        (dead, change(treated(awake(), last=0.1), NAMES[-1:], digest_first="e" * 64)),
        (exploding, still(treated(with_rate(0.1), last=0.1), NAMES)),
        (motionless, treated(stepping(), last=0.3)),
    ],
)
def test_void_where_something_changed_that_had_to_stay(sample: Sample, treatment: Evidence) -> None:
    if sample is detached:
        change(treatment, NAMES[-1:], gradient_digest_first="e" * 64)
    if sample is motionless:
        treatment.outcome.steps += 1
    assert judge(advise(sample()), reruns(sample(), treatment)).mechanisms[0].status == "void"
