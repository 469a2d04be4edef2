"""A dissent never accuses a run: where nothing diverges no cause is named, and a suspicion is not confirmed by it.

Whole diagnoses, with runs by hand: the observed one leaves a row open that the shorter reruns show diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fault_samples import climbing, run, treated

from weaklink.agent.advisors.base import cite
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.continuing import Addition, Continuing
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import Mechanism, Proposal
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.html import render_html
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.markdown import render_markdown
from weaklink.agent.reporters.reading import effective_divergence
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.runner import RunRecord
from weaklink.agent.session import Finished, Options, Session
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Evidence, InterventionReport, Row, Status
from weaklink.collector.job import JobResult, Pins

NO_CAUSE = IncidentStatus(cause="unknown", action="none", recovery="not attempted")
GAP = Row(id="EVALUATION/gap", status="suspected", text="worse in eval mode", values={"gap": 0.4})
STALE = Row(id="EVALUATION/gap", status="fail", basis="exact", text="other weights", values={"gap": 0.4})


def observed(status: Status = "evidence", *later: Row) -> Evidence:
    """A flat run whose scale of updates is open, and what later boundaries show."""
    evidence = run("UPDATE/scale", status, {"outgrown_steps": 1, "ratio": 0.9}, last=0.694159, rate=100.0)
    evidence.rows += [row.model_copy() for row in later]
    return evidence


def experiment(evidence: Evidence) -> Proposal:
    """The playbook's experiment on a rate, as a dissent where the chain does not begin there."""
    proposal = Playbook().advise(climbing(), "", [])
    row = evidence.row("UPDATE/scale")
    assert row is not None
    proposal.cited = cite(row)
    first = evidence.first_divergence
    proposal.dissent = None if first is not None and first.id == row.id else "The steps look far too long."
    return proposal


def words(outcome: str, **fields: Any) -> Proposal:
    """An answer without an experiment that suspects the rate all the same."""
    suspected = Mechanism(id="rate_wrong", boundary="UPDATE", explanation="The steps look too long.")
    plain = {"first_boundary": "UPDATE", "first_row": "UPDATE/scale", "dissent": "Look.", "mechanisms": [suspected]}
    return Proposal.model_validate({"outcome": outcome, **plain, **fields})


class Says:
    """An advisor that always has the same answer."""

    name = "stand-in"

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal

    def advise(self, evidence: Evidence, brief: str, violations: list[str]) -> Proposal:
        assert not violations, violations
        return self.proposal


def reruns(treatment: Evidence) -> dict[str, Evidence]:
    placebo = climbing()
    placebo.intervention = InterventionReport(name="placebo", applied=True)
    return {"control": climbing(), "control_again": climbing(), "placebo": placebo, "treatment": treatment}


def helped() -> Evidence:
    """A treated rerun in which the row passes and the loss falls, as the lead predicts."""
    return rated(treated(climbing(), "pass", last=0.2))


def unmoved() -> Evidence:
    """A treated rerun in which the row stays as it was."""
    return rated(treated(climbing(), None))


def rated(evidence: Evidence) -> Evidence:
    evidence.steps[0].lr = [0.1]
    return evidence


class Runs:
    """Hands out the runs of a diagnosis instead of starting them; `interrupted` is the role that Ctrl-C ends."""

    def __init__(
        self, folder: Path, first: Evidence, later: dict[str, Evidence], interrupted: str | None = None
    ) -> None:
        self.folder, self.first, self.later, self.interrupted = folder, first, later, interrupted
        self.pins = Pins()

    def observe(self) -> RunRecord:
        return self._record("observed", self.first)

    def close_up(self, evidence: Evidence, starts: list[int]) -> RunRecord:
        return self._record("close_up", None)

    def has_room_beside(self, evidence: Evidence) -> bool:
        return False

    def rerun(self, role: str, *_: object) -> RunRecord:
        return self._record(role, self.later[role])

    def _record(self, role: str, evidence: Evidence | None) -> RunRecord:
        ended = JobResult(
            exit_code=0, seconds=0.1, output_sha256="0" * 64, output_bytes=0, interrupted=role == self.interrupted
        )
        return RunRecord(evidence, ended)


def diagnose(folder: Path, evidence: Evidence, answer: Proposal, runs: Runs | None = None, **options: Any) -> Finished:
    """One diagnosis, recorded; without runs of its own every prediction of the lead holds."""
    project = folder / "project"
    project.mkdir()
    runs = runs or Runs(project, evidence, reruns(helped()))
    runs.folder = project
    made = Options(evidence.subject, project, "python", folder / "incidents", **options)
    session = Session(made, Says(answer), Progress())
    session._runner = lambda: nullcontext(runs)  # type: ignore[method-assign, assignment, return-value]
    return session.diagnose_script()


def reports(incident: Incident) -> Iterable[str]:
    yield render_incident(incident, 200, False)
    yield render_markdown(incident)
    yield render_html(incident)


def accuses_nobody(finished: Finished) -> None:
    incident = finished.incident
    assert (finished.exit_code, incident.closed and incident.closed.status) == (0, NO_CAUSE)
    if incident.verdict is not None:
        assert incident.verdict.status == NO_CAUSE
    assert effective_divergence(incident) is None
    told = diagnosis_json(incident)
    assert (told["first_divergence"], told["where"], told["status"]["cause"]) == (None, [], "unknown")
    for report in reports(incident):
        assert "No row fails." in report
        for accusation in ("fails (", "Does the fault", "which cause", "Repair proposed", "weaklink recover"):
            assert accusation not in report
        # That an explanation did not hold is no accusation.
        if told["mechanism"] is not None and told["mechanism"]["status"] != "refuted":
            assert "It may mean" in report
            assert "What it means" not in report


def test_without_a_dissent_the_same_experiment_names_its_cause(tmp_path: Path) -> None:
    evidence = observed("suspected")
    finished = diagnose(tmp_path, evidence, experiment(evidence))
    assert finished.incident.verdict is not None
    assert finished.incident.verdict.status == IncidentStatus(cause="supported", action="proposed")
    assert finished.exit_code == 1
    for report in reports(finished.incident):
        assert "What it means" in report
        assert "Repair proposed" in report
        assert "weaklink recover" in report


@pytest.mark.parametrize(("treatment", "status"), [(helped, "supported"), (unmoved, "refuted")])
def test_what_a_dissent_tested_on_a_healthy_run_is_told_and_accuses_nobody(
    tmp_path: Path, treatment: Callable[[], Evidence], status: str
) -> None:
    evidence = observed()
    assert evidence.first_divergence is None
    runs = Runs(tmp_path, evidence, reruns(treatment()))
    finished = diagnose(tmp_path, evidence, experiment(evidence), runs)
    assert finished.incident.verdict is not None
    assert finished.incident.verdict.verdict.mechanisms[0].status == status
    for report in reports(finished.incident):
        assert status in report
    accuses_nobody(finished)


def test_a_dissent_that_no_rerun_tested_leaves_a_healthy_run_healthy(tmp_path: Path) -> None:
    evidence = observed()
    finished = diagnose(tmp_path, evidence, experiment(evidence), rerun=False)
    assert finished.incident.frozen is not None
    accuses_nobody(finished)


def test_a_dissent_that_was_interrupted_leaves_no_suspicion_on_a_healthy_run(tmp_path: Path) -> None:
    evidence = observed()
    runs = Runs(tmp_path, evidence, reruns(helped()), interrupted="placebo")
    finished = diagnose(tmp_path, evidence, experiment(evidence), runs)
    assert finished.exit_code == 130
    assert finished.incident.closed is not None
    assert finished.incident.closed.status == NO_CAUSE


@pytest.mark.parametrize(
    "answer",
    [
        words("ask_operator", question="Is a rate of 100 meant?"),
        words("inconclusive"),
        words("inconclusive", first_boundary="NONE", first_row=None, dissent=None),
        words("nothing_to_repair", first_boundary="NONE", first_row=None, dissent=None, mechanisms=[]),
    ],
    ids=lambda answer: f"{answer.outcome} at {answer.first_boundary}",
)
def test_no_other_answer_accuses_a_healthy_run(tmp_path: Path, answer: Proposal) -> None:
    accuses_nobody(diagnose(tmp_path, observed(), answer))


def test_a_dissent_confirms_nothing_of_a_suspected_run(tmp_path: Path) -> None:
    evidence = observed("evidence", GAP)
    finished = diagnose(tmp_path, evidence, experiment(evidence))
    incident = finished.incident
    assert incident.verdict is not None
    assert incident.verdict.verdict.mechanisms[0].status == "supported"
    assert incident.verdict.status == IncidentStatus(cause="suspected", action="none")
    row = effective_divergence(incident)
    assert row is not None
    assert (row.id, row.status) == (GAP.id, "suspected")
    for report in reports(incident):
        assert "is suspected, not proven" in report
        assert "What it means" not in report
        assert "Repair proposed" not in report


def test_a_dissent_at_a_row_that_the_run_itself_shows_diverge_may_name_the_cause(tmp_path: Path) -> None:
    evidence = observed("suspected", STALE)
    answer = experiment(evidence)
    assert answer.dissent is not None, "the failing row comes first"
    finished = diagnose(tmp_path, evidence, answer)
    assert finished.incident.verdict is not None
    assert finished.incident.verdict.status.cause == "supported"
    row = effective_divergence(finished.incident)
    assert row is not None
    assert row.id == STALE.id, "a fail stands, whatever else was found"


def test_a_suspicion_that_is_waved_off_is_no_suspected_cause(tmp_path: Path) -> None:
    healthy = Mechanism(id="none", boundary="NONE", explanation="It trains as it was meant to.")
    fields = {"first_boundary": "NONE", "first_row": None, "dissent": "Dropout explains it.", "mechanisms": [healthy]}
    finished = diagnose(tmp_path, observed("pass", GAP), words("nothing_to_repair", **fields))
    assert finished.incident.closed is not None
    assert finished.incident.closed.status == NO_CAUSE
    assert f"Is {GAP.id} a fault at all? Dropout explains it." in render_markdown(finished.incident)
    row = effective_divergence(finished.incident)
    assert row is not None
    assert row.status == "suspected", "what was seen stays, whatever is said of it"


def test_a_cause_does_not_outlive_the_divergence_that_it_was_about(tmp_path: Path) -> None:
    suspected = observed("suspected")
    first = diagnose(tmp_path, suspected, experiment(suspected)).incident
    assert first.closed is not None
    assert first.closed.status.cause == "supported"
    healthy, again = observed("pass"), observed("suspected")
    for evidence, cause in ((again, "supported"), (healthy, "unknown")):
        finished = go_on(tmp_path, first, evidence)
        assert finished.incident.verdict is None
        assert finished.incident.closed is not None
        assert finished.incident.closed.status.cause == cause
    accuses_nobody(finished)


def go_on(folder: Path, incident: Incident, evidence: Evidence) -> Finished:
    """A further round in which the run is observed again, and whoever is asked cannot tell."""
    incident = Incident.read(incident.folder)
    project = folder / "project"
    options = Options(evidence.subject, project, "python", folder / "incidents", intent=Intent(classes=2))
    first = evidence.first_divergence
    answer = Proposal(
        outcome="inconclusive",
        first_boundary=first.boundary if first else "NONE",
        first_row=first.id if first else None,
    )
    session = Continuing(options, Says(answer), Progress(), incident=incident, addition=Addition(), anew=True)
    runs = Runs(project, evidence, {})
    session._runner = lambda: nullcontext(runs)  # type: ignore[method-assign, assignment, return-value]
    return session.go_on()
