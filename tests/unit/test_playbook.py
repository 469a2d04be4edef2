"""The built-in advisor: every page meets the contract, and none invents an experiment."""

from __future__ import annotations

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.advisors.causes import CAUSES, QUESTIONS, REPAIRS
from weaklink.agent.advisors.playbook import PAGES, Playbook
from weaklink.agent.contract import violations
from weaklink.agent.patterns import common_pattern, exact_pattern
from weaklink.collector.evidence import Basis, Evidence, Row, Status, mark_downstream


def advise(evidence: Evidence) -> object:
    return Playbook().advise(evidence, "", [])


def only(row_id: str, status: Status) -> Evidence:
    """A run in which exactly this row diverges."""
    evidence = stale_head_evidence()
    basis: Basis | None = "exact" if status == "fail" else None
    row = Row(id=row_id, status=status, basis=basis, text="diverges", values={"count": 3, "share": 0.25})
    quiet = [r for r in evidence.rows if r.status not in ("fail", "suspected") and r.id != row_id]
    evidence.rows = mark_downstream([*quiet, row])
    return evidence


def test_the_stale_head_gets_the_experiment_on_ownership() -> None:
    proposal = Playbook().advise(stale_head_evidence(), "", [])
    assert violations(proposal, stale_head_evidence()) == []
    assert proposal.experiment is not None
    assert proposal.experiment.name == "own_missing_parameters"
    assert proposal.experiment.parameters == {"parameters": "head.*"}
    assert proposal.mechanisms[0].id == "optimizer_holds_old_objects"
    assert "delta.net[features.*]" in proposal.must_stay_unchanged
    assert Playbook().advise(stale_head_evidence(), "anything", ["an objection"]) == proposal


def test_without_a_replaced_namesake_the_parameters_were_never_given() -> None:
    evidence = stale_head_evidence()
    evidence.rows = [row for row in evidence.rows if row.id != "OWNERSHIP/stale"]
    proposal = Playbook().advise(evidence, "", [])
    assert proposal.mechanisms[0].id == "not_in_optimizer"
    assert violations(proposal, evidence) == []


def test_without_frozen_parameters_the_steps_must_stay() -> None:
    evidence = stale_head_evidence()
    evidence.parameters = [p for p in evidence.parameters if p.requires_grad]
    proposal = Playbook().advise(evidence, "", [])
    assert proposal.must_stay_unchanged[-1] == "steps"
    assert violations(proposal, evidence) == []


@pytest.mark.parametrize("row_id", sorted(CAUSES))
@pytest.mark.parametrize("status", ["fail", "suspected"])
def test_every_page_meets_the_contract(row_id: str, status: Status) -> None:
    evidence = only(row_id, status)
    proposal = Playbook().advise(evidence, "", [])
    assert violations(proposal, evidence) == []
    if row_id not in PAGES:
        assert proposal.outcome == "ask_operator"
        assert proposal.question


def test_a_row_without_a_page_is_asked_about() -> None:
    evidence = only("EVALUATION/something_new", "fail")
    proposal = Playbook().advise(evidence, "", [])
    assert proposal.outcome == "ask_operator"
    assert violations(proposal, evidence) == []


def test_a_clean_chain_has_nothing_to_repair() -> None:
    evidence = stale_head_evidence()
    evidence.rows = [row for row in evidence.rows if row.status not in ("fail", "suspected")]
    proposal = Playbook().advise(evidence, "", [])
    assert proposal.outcome == "nothing_to_repair"
    assert violations(proposal, evidence) == []
    evidence.outcome.backwards = 0
    assert Playbook().advise(evidence, "", []).outcome == "inconclusive"


def test_questions_and_repairs_belong_to_pages() -> None:
    assert set(QUESTIONS) <= set(CAUSES)
    assert set(REPAIRS) <= set(CAUSES)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["head.weight", "head.bias"], "head.*"),
        (["head.weight"], "head.weight"),
        (["a.b.weight", "a.b.bias", "a.c.weight"], "a.*"),
        (["a.weight", "b.weight"], "*"),
        (["weight"], "weight"),
        (["x[0].w", "x[0].b"], "x[[]0].*"),
        ([], "*"),
    ],
)
def test_common_pattern(names: list[str], pattern: str) -> None:
    assert common_pattern(names) == pattern


@pytest.mark.parametrize(
    ("names", "others", "pattern"),
    [
        (["f.0.w", "f.1.w"], ["head.w"], "f.*"),
        (["f.0.w", "f.0.b", "f.1.w"], ["f.2.w"], "f.0.*"),
        (["f.0.w"], ["f.0.b"], "f.0.w"),
        (["w"], ["w"], None),
        ([], ["w"], None),
    ],
)
def test_exact_pattern_never_matches_the_others(names: list[str], others: list[str], pattern: str | None) -> None:
    assert exact_pattern(names, others) == pattern
