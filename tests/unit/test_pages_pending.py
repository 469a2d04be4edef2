"""The page for UPDATE/pending, on the evidence of a real run."""

from __future__ import annotations

from pathlib import Path

from collector_runs import line_of, observe, row
from test_experiments_pending import CARRIED, EARLY

from weaklink.agent.advisors.pending import early_step
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations


def test_the_step_is_asked_to_wait_and_what_comes_before_it_must_stay(tmp_path: Path) -> None:
    evidence = observe(EARLY, tmp_path, keep_initial=True).seen
    proposal = early_step(evidence, row(evidence, "UPDATE/pending"))

    assert proposal is not None
    assert violations(proposal, evidence) == []
    assert proposal.experiment is not None
    assert proposal.experiment.name == "defer_step_until_backward"
    assert proposal.experiment.parameters == {"site": f"train.py:{line_of(EARLY, 'of_critic.step()')}"}
    assert [mechanism.id for mechanism in proposal.mechanisms] == ["step_before_backward", "other"]
    assert proposal.must_change == ["row[UPDATE/pending]", "steps", "moved[Linear.*]", "delta.net[Linear.*]"]
    assert proposal.must_stay_unchanged == [
        "output.first",
        "loss.first",
        "gradient.first[Sequential.*]",
        "moved[Sequential.*]",
    ]


def test_the_same_evidence_gives_the_same_answer_through_the_playbook(tmp_path: Path) -> None:
    evidence = observe(EARLY, tmp_path, keep_initial=True).seen

    assert Playbook().advise(evidence, "", []) == early_step(evidence, row(evidence, "UPDATE/pending"))


def test_without_a_line_that_asks_for_the_step_there_is_nothing_to_defer(tmp_path: Path) -> None:
    evidence = observe(EARLY, tmp_path, keep_initial=True).seen
    found = row(evidence, "UPDATE/pending")
    elsewhere = found.model_copy(update={"values": {**found.values, "step_at": None}})

    assert early_step(evidence, elsewhere) is None


def test_a_graph_carried_over_a_step_is_asked_about(tmp_path: Path) -> None:
    evidence = observe(CARRIED, tmp_path, keep_initial=True).seen
    proposal = Playbook().advise(evidence, "", [])

    assert proposal.outcome == "ask_operator"
    assert [mechanism.id for mechanism in proposal.mechanisms] == ["missing_stop_gradient", "step_before_backward"]
    assert violations(proposal, evidence) == []
