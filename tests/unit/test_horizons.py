"""How far reruns go, by what means they measure, and what is said of their cost beforehand."""

from __future__ import annotations

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.horizons import cost, default_horizon, horizons, means
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence, Row


def proposed(evidence: Evidence) -> Proposal:
    return Playbook().advise(evidence, "", [])


def stale(steps: int = 5000, seconds: float = 600.0) -> Evidence:
    evidence = stale_head_evidence()
    evidence.outcome.steps, evidence.outcome.seconds, evidence.outcome.ended = steps, seconds, "completed"
    return evidence


def at(row_id: str, step: int | None, **values: int) -> Row:
    return Row(id=row_id, status="suspected", text="", step=step, values=dict(values))


@pytest.mark.parametrize(
    ("row", "steps"),
    [
        (at("UPDATE/scale", None), 50),
        (at("UPDATE/scale", 3), 50),
        (at("UPDATE/scale", 80), 160),
        (at("UPDATE/scale", 900), 1000),
        (at("UPDATE/scale", 2, nonfinite_from_step=70), 140),
    ],
)
def test_a_horizon_is_twice_the_onset_within_bounds(row: Row, steps: int) -> None:
    assert default_horizon(row) == steps


def test_a_long_run_is_extended_once_and_never_run_whole() -> None:
    evidence = stale()
    assert horizons(evidence, proposed(evidence), None) == [50, 200]


def test_a_short_run_is_extended_to_its_end() -> None:
    evidence = stale(steps=300, seconds=4.0)
    assert horizons(evidence, proposed(evidence), None) == [50, None]
    evidence = stale(steps=40, seconds=4.0)
    assert horizons(evidence, proposed(evidence), None) == [None]


def test_what_was_asked_for_stands_alone() -> None:
    evidence = stale()
    assert horizons(evidence, proposed(evidence), 120) == [120]


def test_a_row_of_the_evaluation_takes_the_whole_run_up_to_where_the_deadline_cut_it() -> None:
    evidence = stale()
    proposal = proposed(evidence).model_copy(update={"first_row": "EVALUATION/buffers"})
    evidence.rows.append(Row(id="EVALUATION/buffers", status="fail", basis="exact", text=""))
    assert horizons(evidence, proposal, None) == [None]
    evidence.outcome.ended = "deadline"
    assert horizons(evidence, proposal, None) == [5000]


def test_reruns_measure_predicted_rows_by_the_means_that_showed_them() -> None:
    evidence = stale()
    proposal = proposed(evidence)
    assert not means(evidence, proposal).look
    assert means(evidence, proposal).starts == ()
    row = evidence.row("OWNERSHIP/owned")
    assert row is not None
    row.means = ["look", "close_up"]
    assert means(evidence, proposal).look
    assert means(evidence, proposal).starts[0] == 1
    row.means = []
    other = evidence.row("OBJECTIVE/value")
    assert other is not None
    other.means = ["look"]
    assert not means(evidence, proposal).look, "nobody predicts that row"


def test_the_cost_is_said_for_both_horizons() -> None:
    evidence = stale(steps=1000, seconds=100.0)
    first, _, longer = cost(evidence, [50, 200]).partition("; ")
    assert first == "rerun    4 reruns of up to 50 steps, about 20 s in all"
    assert longer == "up to 200 steps and 80 s more where that does not decide"
    assert cost(evidence, [None]) == "rerun    4 reruns of up to 1000 steps, about 400 s in all"
