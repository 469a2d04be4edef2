"""The pages for GRADIENT and OWNERSHIP: which experiment each row gets, and what the judge makes of its rerun."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_samples import FEATURES, NAMES, change, dead, reruns, run, still, treated

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations
from weaklink.agent.proposal import Proposal
from weaklink.agent.verifier import judge
from weaklink.collector.evidence import Evidence, Row, Site, Value

Sample = Callable[[], Evidence]


def never_cleared() -> Evidence:
    return run("GRADIENT/pre_existing", "fail", {"pre_existing": 0, "never_cleared": 9}, last=0.5)


def cleared_early() -> Evidence:
    return run("GRADIENT/cleared", "fail", {"windows": 9, "backwards": 4}, last=0.5)


def unregistered() -> Evidence:
    return run("OWNERSHIP/unregistered", "fail", {"unregistered": 6}, last=0.5)


def shared() -> Evidence:
    return run("OWNERSHIP/shared", "fail", {"container": "heads", "times": 4, "same_input": 3}, last=0.5)


def trespassing() -> Evidence:
    return run("OWNERSHIP/isolation", "fail", {"objectives": 2, "trespasses": ["SGD stepped head.weight"]}, last=0.5)


def left_out() -> Evidence:
    """Two biases that were there when the optimizer was built, and that it was not given."""
    missing = ("features.0.bias", "features.2.bias")
    evidence = run("OWNERSHIP/owned", "suspected", {"owned": 4, "expected": 6, "missing": list(missing)}, last=0.5)
    return still(evidence, missing, owned=False)


def broken(operation: str = "sqrt", step: int = 7) -> Evidence:
    """Gradients that are not finite from a step on, and the operation that made them so."""
    evidence = run("GRADIENT/finite", "suspected", {"nonfinite": 6, "loss": 0.4}, last=float("nan"))
    evidence.rows[0].step = step
    origin = Row(
        id="GRADIENT/origin",
        status="evidence",
        text="the first value that is not finite",
        values={"direction": "backward", "operation": operation},
        where=[Site(file="train.py", line=13, what="the derivative of sqrt: the first value not finite")],
        step=step,
    )
    evidence.rows.append(origin)
    evidence.rows.append(Row(id="OWNERSHIP/owned", status="pass", text="6/6", values={"owned": 6, "expected": 6}))
    return evidence


def ending(kind: str, operation: str, what: str, since: int | None, names: tuple[str, ...] = NAMES) -> Evidence:
    values: dict[str, Value] = {"zero": list(names), "ends_at": [kind], "operation": operation, "since": since}
    evidence = run("GRADIENT/nonzero", "suspected", values)
    evidence.rows[0].where = [Site(file="train.py", line=27, what=what), Site(file="train.py", line=9, what="created")]
    return change(evidence, names, always_zero=True)


def dead_output() -> Evidence:
    return ending("limit", "relu", "the gradient ends at Relu", None)


def died_later() -> Evidence:
    return ending("limit", "relu", "the gradient ends at Relu", 12, FEATURES)


def rounded() -> Evidence:
    """From the start, and in front of layers that learn: no other weights would help."""
    return ending("limit", "round", "the gradient ends at Round", None, FEATURES)


def cancelling() -> Evidence:
    return ending("cancelled", "sub", "two ways cancel", None)


def waiting() -> Evidence:
    zero = ("features.0.weight", "features.2.weight")
    values: dict[str, Value] = {"zero": list(zero), "ends_at": ["product"], "waiting": ["features.0.weight"]}
    return still(run("GRADIENT/nonzero", "fail", values), zero, gradient="zero", always_zero=True)


def advise(evidence: Evidence) -> Proposal:
    return Playbook().advise(evidence, "", [])


PAGES: list[tuple[Sample, str, dict[str, Value], list[str]]] = [
    (never_cleared, "zero_grad_before_backward", {}, ["stale_gradient", "rate_wrong"]),
    (cleared_early, "keep_grad_until_step", {}, ["gradient_cleared_early", "graph_cut"]),
    (
        unregistered,
        "own_missing_parameters",
        {"parameters": "*", "unregistered": True},
        ["not_registered", "rate_wrong", "other"],
    ),
    (shared, "untie_modules", {"container": "heads"}, ["shared_by_mistake", "other", "rate_wrong"]),
    (trespassing, "isolate_objectives", {}, ["other", "stale_gradient"]),
    (left_out, "own_missing_parameters", {"parameters": "features.*.bias"}, ["not_in_optimizer", "rate_wrong"]),
    (broken, "at_site", {"site": "train.py:13", "function": "sqrt", "change": "clamp"}, ["nonfinite", "rate_wrong"]),
    (
        dead_output,
        "at_site",
        {"site": "train.py:27", "function": "relu", "change": "bypass"},
        ["zero_gradient", "signal_vanishes", "other"],
    ),
    (
        died_later,
        "at_site",
        {"site": "train.py:27", "function": "relu", "change": "bypass"},
        ["zero_gradient", "signal_vanishes", "other"],
    ),
    (
        rounded,
        "at_site",
        {"site": "train.py:27", "function": "round", "change": "bypass"},
        ["zero_gradient", "signal_vanishes", "other"],
    ),
    (
        cancelling,
        "at_site",
        {"site": "train.py:27", "function": "sub", "change": "cut"},
        ["zero_gradient", "signal_vanishes"],
    ),
    (
        waiting,
        "reinitialize",
        {"module": "features.0.weight", "scheme": "kaiming_uniform", "seed": 0},
        ["zero_gradient", "signal_vanishes", "other"],
    ),
]


@pytest.mark.parametrize(
    ("sample", "name", "parameters", "mechanisms"), PAGES, ids=[page[0].__name__ for page in PAGES]
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


@pytest.mark.parametrize("sample", [page[0] for page in PAGES], ids=[page[0].__name__ for page in PAGES])
def test_a_row_that_passes_supports_the_lead_and_one_that_stays_refutes_it(sample: Sample) -> None:
    proposal = advise(sample())
    mended = treated(sample(), last=0.2)
    for record in mended.parameters:
        record.moved, record.delta_net = True, 1.5
    assert judge(proposal, reruns(sample(), mended)).mechanisms[0].status == "supported"
    left = treated(sample(), status=None, last=0.2)
    assert judge(proposal, reruns(sample(), left)).mechanisms[0].status == "refuted"


def test_from_the_first_step_on_only_what_no_value_can_move_must_stay() -> None:
    assert "output.first" not in advise(broken(step=1)).must_stay_unchanged
    assert "output.first" in advise(broken(step=2)).must_stay_unchanged
    assert violations(advise(broken(step=1)), broken(step=1)) == []


@pytest.mark.parametrize("operation", ["mul", "", "index"])
def test_an_operation_without_a_range_is_asked_about(operation: str) -> None:
    assert advise(broken(operation)).outcome == "ask_operator"


@pytest.mark.parametrize(
    ("operation", "function"),
    [("__truediv__", "div"), ("logsoftmax", "log_softmax"), ("exp_", "exp"), ("special_expm1", "expm1")],
)
def test_an_operation_is_known_by_each_of_its_names(operation: str, function: str) -> None:
    choice = advise(broken(operation)).experiment
    assert choice is not None
    assert choice.parameters["function"] == function


def test_a_scaler_that_skips_every_step_is_expected_to_step() -> None:
    evidence = broken(step=1)
    evidence.outcome.steps = 0
    change(evidence, NAMES, moved=False, delta_net=0.0)
    assert advise(evidence).must_change == ["row[GRADIENT/finite]", "steps", "moved[*]"]
    assert violations(advise(evidence), evidence) == []


def test_zeros_that_no_one_pattern_means_are_asked_about() -> None:
    evidence = waiting()
    evidence.rows[0].values["waiting"] = ["features.0.weight", "head.weight"]
    assert advise(evidence).outcome == "ask_operator"
    evidence.rows[0].values["waiting"] = ["features.0.weight", "features.2.weight"]
    choice = advise(evidence).experiment
    assert choice is not None
    assert choice.parameters["module"] == "features.*.weight"


@pytest.mark.parametrize("ends", [["limit"], ["limit", "product"]])
def test_units_that_are_dead_from_the_first_step_get_other_weights(ends: list[str]) -> None:
    evidence = dead()
    evidence.rows[0].values |= {"ends_at": list(ends), "operation": "relu", "since": None}
    evidence.rows[0].where = [Site(file="train.py", line=27, what="the gradient ends at Relu")]
    choice = advise(evidence).experiment
    assert choice is not None
    assert choice.name == "reinitialize"


def test_layers_made_anew_at_every_call_are_asked_about() -> None:
    evidence = unregistered()
    evidence.rows[0].status, evidence.rows[0].basis = "suspected", None
    assert advise(evidence).outcome == "ask_operator"
