"""The pages for data and the loss: the experiment of each row, and what the judge makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from fault_samples import reruns, run, treated

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations
from weaklink.agent.measurements import take
from weaklink.agent.proposal import Proposal
from weaklink.agent.verifier import judge
from weaklink.collector.evidence import Evidence, Site, Status, Value

Sample = Callable[[], Evidence]
LINE = "train.py:40"


def diverging(
    row_id: str, values: dict[str, Value] | None = None, status: Status = "fail", last: float = 0.69, line: bool = True
) -> Evidence:
    evidence = run(row_id, status, values or {}, last=last)
    if line:
        evidence.rows[0].where = [Site(file="data.py", line=3, what="made"), Site(file="train.py", line=40, what="met")]
    return evidence


def advise(evidence: Evidence) -> Proposal:
    return Playbook().advise(evidence, "", [])


LEFT_OUT: dict[str, Value] = {"label": 3, "seen": 40, "supervised": 0, "ignore_index": 3, "predicted": [0, 1]}
END_LEFT_OUT: dict[str, Value] = {"token": 7, "seen": 40, "supervised": 0, "predicted": [1, 2]}

ROWS: list[tuple[Evidence, str, dict[str, Value], list[str]]] = [
    (diverging("TASK/item"), "read_items_anew", {}, ["input_corrupted", "other"]),
    (
        diverging("TASK/order", status="suspected"),
        "shuffle_data",
        {"seed": 0, "site": "data.py:3"},
        ["data_not_mixed", "other"],
    ),
    (diverging("TASK/epoch_order"), "shuffle_data", {"seed": 0, "site": ""}, ["data_not_mixed", "other"]),
    (
        diverging("TASK/finite", last=math.nan),
        "drop_rows",
        {"rows": "nonfinite"},
        ["input_corrupted", "nonfinite"],
    ),
    (diverging("TASK/leak", {"both_ways": False}), "causal_mask", {}, ["target_leak", "other"]),
    (
        diverging("OBJECTIVE/fed", {"sigmoid_into_logits": True}),
        "raw_scores_to_loss",
        {},
        ["wrong_scores_to_loss", "other"],
    ),
    (
        diverging("OBJECTIVE/fed", {"divergence_inputs": True}),
        "raw_scores_to_loss",
        {},
        ["wrong_scores_to_loss", "other"],
    ),
    (diverging("OBJECTIVE/floor"), "raw_scores_to_loss", {}, ["wrong_scores_to_loss", "wrong_term_or_sign"]),
    (diverging("OBJECTIVE/shapes"), "match_target_shape", {"site": LINE}, ["shape_misread", "other"]),
    (diverging("OBJECTIVE/shapes", line=False), "match_target_shape", {"site": ""}, ["shape_misread", "other"]),
    (diverging("OBJECTIVE/broadcast"), "match_target_shape", {"site": LINE}, ["shape_misread", "other"]),
    (
        diverging("OBJECTIVE/mode", {"training": False}, status="suspected"),
        "set_mode",
        {"mode": "train", "modules": "*"},
        ["wrong_mode_in_training", "other"],
    ),
    (diverging("OBJECTIVE/independence"), "rows_in_order", {}, ["shape_misread", "pairing_broken"]),
    (
        diverging("OBJECTIVE/supervised", LEFT_OUT, status="suspected"),
        "without_ignore_index",
        {},
        ["supervision_missing", "capacity"],
    ),
    (
        diverging("OBJECTIVE/supervised", END_LEFT_OUT, status="suspected"),
        "supervise_token",
        {"token": 7},
        ["supervision_missing", "capacity"],
    ),
    (
        diverging("OBJECTIVE/prior", {"order": [2, 0, 1]}, status="suspected"),
        "prior_by_class",
        {"order": [2, 0, 1]},
        ["label_convention", "other"],
    ),
    (
        diverging("OBJECTIVE/sequence", {"with_blank": 4}),
        "trim_target_lengths",
        {},
        ["wrong_reduction", "label_convention"],
    ),
]


@pytest.mark.parametrize(("evidence", "name", "parameters", "families"), ROWS, ids=[row[1] for row in ROWS])
def test_the_experiment_of_each_row(
    evidence: Evidence, name: str, parameters: dict[str, Value], families: list[str]
) -> None:
    proposal = advise(evidence)
    assert violations(proposal, evidence) == []
    assert proposal.experiment is not None
    assert (proposal.experiment.name, proposal.experiment.parameters) == (name, parameters)
    assert [mechanism.id for mechanism in proposal.mechanisms] == families
    assert f"row[{evidence.rows[0].id}]" in proposal.must_change
    assert advise(evidence) == proposal


@pytest.mark.parametrize(("evidence", "name", "parameters", "families"), ROWS, ids=[row[1] for row in ROWS])
def test_a_row_that_stays_refutes_the_lead(
    evidence: Evidence, name: str, parameters: dict[str, Value], families: list[str]
) -> None:
    verdict = judge(advise(evidence), reruns(evidence, treated(evidence.model_copy(deep=True), status=None)))
    assert (verdict.mechanisms[0].id, verdict.mechanisms[0].status) == (families[0], "refuted")


@pytest.mark.parametrize(
    "evidence",
    [
        diverging("TASK/order", status="suspected", line=False),
        diverging("TASK/finite", last=0.3),
        diverging("TASK/leak", {"both_ways": True}),
        diverging("TASK/supervised"),
        diverging("TASK/coverage", status="suspected"),
        diverging("TASK/pairing"),
        diverging("OBJECTIVE/fed", {"positive_log_probabilities": True}, status="suspected"),
        diverging("OBJECTIVE/supervised", {**LEFT_OUT, "ignore_index": None}, status="suspected"),
        diverging("OBJECTIVE/supervised", {"token": 7, "padding": 9, "content": 4}, status="suspected"),
        diverging("OBJECTIVE/sequence", {"with_blank": 0}),
        diverging("OBJECTIVE/terms"),
        diverging("OBJECTIVE/factor"),
        diverging("OBJECTIVE/reduction", status="suspected"),
        diverging("OBJECTIVE/prior", {"classes": 4}, status="suspected"),
    ],
    ids=lambda evidence: evidence.rows[0].id,
)
def test_where_no_change_to_a_rerun_decides_the_operator_is_asked(evidence: Evidence) -> None:
    proposal = advise(evidence)
    assert (proposal.outcome, proposal.experiment) == ("ask_operator", None)
    assert proposal.question
    assert violations(proposal, evidence) == []


@pytest.mark.parametrize(
    ("predicted", "status", "rival"),
    [([0, 1, 3], "supported", "refuted"), ([0, 1], "refuted", "inconclusive")],
)
def test_a_label_left_out_is_told_from_a_model_that_cannot_learn_it(
    predicted: list[Value], status: str, rival: str
) -> None:
    evidence = diverging("OBJECTIVE/supervised", LEFT_OUT, status="suspected")
    treatment = treated(evidence.model_copy(deep=True))
    treatment.rows[0].values = {"predicted": predicted}
    treatment.losses.value[0] = 0.8
    verdict = judge(advise(evidence), reruns(evidence, treatment))
    assert [mechanism.status for mechanism in verdict.mechanisms] == [status, rival]


@pytest.mark.parametrize(("last", "status"), [(1.5, "supported"), (0.2, "refuted")])
def test_a_leak_is_one_only_where_hiding_it_costs_something(last: float, status: str) -> None:
    evidence = diverging("TASK/leak", {"both_ways": False})
    treatment = treated(evidence.model_copy(deep=True), last=last)
    treatment.fingerprint.outputs = "4" * 64
    verdict = judge(advise(evidence), reruns(evidence, treatment))
    assert verdict.mechanisms[0].status == status


@pytest.mark.parametrize(
    ("key", "value"),
    [("predicted/1", 1), ("predicted/3", 0), ("label/3", None), ("absent/3", None), ("predicted", None)],
)
def test_whether_a_rows_list_holds_an_item(key: str, value: int | None) -> None:
    evidence = diverging("OBJECTIVE/supervised", LEFT_OUT, status="suspected")
    measured = take(evidence, f"listed[OBJECTIVE/supervised/{key}]")
    assert measured.value == value
    assert measured.taken is (value is not None)
