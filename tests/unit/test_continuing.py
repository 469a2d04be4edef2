"""Rounds of one incident: what may be written, what is read back, what is refused before anything is written."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from evidence_samples import EMPTY, stale_head_evidence
from test_record_incident import answered, closed, finished, frozen, opened, verdict

from weaklink.agent.advisors.by_hand import ByHand, chosen, deciding
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.commands.continue_ import _choice, _from_file
from weaklink.agent.continuing import LONGEST_FACT, Addition, check_continuable, declares_more
from weaklink.agent.contract import violations
from weaklink.agent.proposal import ExperimentChoice, Proposal
from weaklink.agent.record.bodies import Answered, Continued, Observed, OperatorFact, RerunStarted, VerdictReached
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.check import check_record
from weaklink.agent.record.errors import RecordError
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.html import render_html
from weaklink.agent.reporters.json_report import receipt_json
from weaklink.agent.reporters.markdown import render_markdown
from weaklink.agent.reporters.reading import effective_divergence
from weaklink.agent.reporters.rounds import continued_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Options
from weaklink.agent.verdict import IncidentStatus, MechanismOutcome, PredictionOutcome, Verdict
from weaklink.collector.declared import Intent
from weaklink.collector.errors import InterventionError, UsageError
from weaklink.collector.evidence import Evidence, Row, SourceFile, Subject

FACT = OperatorFact(number=1, text="the head is new </section>[red]", given="2026-11-30T09:05:07+00:00")
START = RerunStarted(role="control", intervention=None, horizon=8)


def continued(**fields: Any) -> Continued:
    plain = {"round": 2, "created": "2026-11-30T09:05:07+00:00", "weaklink": "0.1.0", "advisor": "playbook"}
    return Continued.model_validate(plain | fields)


def first_round(
    folder: Path, evidence: Evidence, proposal: Proposal | None = None, judged: VerdictReached | None = None
) -> RecordWriter:
    writer = RecordWriter(folder / "events.jsonl")
    writer.append("incident.opened", opened(folder))
    writer.append("evidence.observed", Observed(evidence=evidence, evidence_sha256="0" * 64))
    answer = proposal or Playbook().advise(evidence, "", [])
    writer.append("advisor.answered", Answered(advisor="playbook", attempt=1, proposal=answer))
    writer.append("prediction.frozen", frozen({"n": 1}))
    writer.append("rerun.started", START)
    writer.append("rerun.finished", finished(1.0))
    writer.append("verdict.reached", judged or verdict("first"))
    writer.append("incident.closed", closed(1))
    return writer


def confirming() -> VerdictReached:
    """A mechanism supported, and the loss lower without the fault, as it had predicted."""
    better = PredictionOutcome(
        mechanism="pairing_broken", measurement="loss.last", expect="down", control=0.9, treatment=0.2, status="held"
    )
    supported = MechanismOutcome(id="pairing_broken", status="supported", reason="the row flips.")
    decided = Verdict(
        controls_agree=True,
        observed_prefix_agrees=True,
        applied=True,
        predictions=[better],
        mechanisms=[supported],
        text="pairing_broken supported",
    )
    return VerdictReached(verdict=decided, status=IncidentStatus(cause="supported"))


def test_a_closed_record_takes_a_fact_and_is_opened_again_by_nothing_else(tmp_path: Path) -> None:
    with first_round(tmp_path, stale_head_evidence()) as writer:
        writer.append("operator.fact", FACT)
        with pytest.raises(RecordError, match="may not follow"):
            writer.append("advisor.answered", answered("UPDATE/first", []))
        writer.append("incident.continued", continued(facts=[1]))
        writer.append("advisor.answered", answered("UPDATE/first", []))
    assert check_record(tmp_path).intact


def test_a_rerun_of_a_further_round_needs_a_prediction_of_that_round(tmp_path: Path) -> None:
    with first_round(tmp_path, stale_head_evidence()) as writer:
        writer.append("incident.continued", continued())
        with pytest.raises(RecordError, match="before any prediction"):
            writer.append("rerun.started", START)
        writer.append("prediction.frozen", frozen({"n": 2}))
        writer.append("rerun.started", START)
    assert [each["run"] for each in check_record(tmp_path).frozen] == [True, True]


def test_the_last_round_is_read_and_the_ones_before_are_kept(tmp_path: Path) -> None:
    with first_round(tmp_path, stale_head_evidence()) as writer:
        writer.append("operator.fact", FACT)
        writer.append("incident.continued", continued(facts=[1], declared={"classes": 2}, options={"rule": "a:b"}))
        writer.append("advisor.answered", answered("UPDATE/second", []))
        writer.append("prediction.frozen", frozen({"n": 2}))
        writer.append("rerun.started", START)
        writer.append("rerun.finished", finished(2.0))
    incident = Incident.read(tmp_path)
    assert incident.frozen is not None
    assert incident.frozen.claim == {"n": 2}
    assert [rerun.seconds for rerun in incident.reruns] == [2.0]
    assert (incident.verdict, incident.closed) == (None, None)
    assert (incident.declared, incident.options) == ({"classes": 2}, {"rule": "a:b"})
    (before,) = incident.earlier
    assert before.frozen is not None
    assert before.frozen.claim == {"n": 1}
    assert before.verdict == verdict("first")
    assert before.closed == closed(1)
    assert before.continued is None
    assert [each.frozen for each in incident.rounds] == [before.frozen, incident.frozen]
    assert incident.facts == [FACT]


def test_an_answer_that_was_judged_before_stands_on_that_verdict(tmp_path: Path) -> None:
    evidence = stale_head_evidence()
    with first_round(tmp_path, evidence) as writer:
        writer.append("incident.continued", continued())
        again = Playbook().advise(evidence, "", []).model_copy(update={"cited": []})
        writer.append("advisor.answered", Answered(advisor="playbook", attempt=1, proposal=again))
        writer.append("incident.closed", closed(1))
    incident = Incident.read(tmp_path)
    assert incident.verdict == verdict("first")
    assert incident.frozen is not None
    assert incident.frozen.claim == {"n": 1}


def test_another_answer_does_not_inherit_a_verdict(tmp_path: Path) -> None:
    evidence = stale_head_evidence()
    with first_round(tmp_path, evidence) as writer:
        writer.append("incident.continued", continued())
        other = Playbook().advise(evidence, "", []).model_copy(update={"must_change": ["loss.last"]})
        writer.append("advisor.answered", Answered(advisor="playbook", attempt=1, proposal=other))
    assert Incident.read(tmp_path).verdict is None


def test_reports_name_facts_and_earlier_predictions(tmp_path: Path) -> None:
    with first_round(tmp_path, stale_head_evidence()) as writer:
        writer.append("operator.fact", FACT)
        writer.append("incident.continued", continued(facts=[1]))
        question = Proposal(outcome="ask_operator", first_boundary="UPDATE", first_row="UPDATE/x", question="why?")
        writer.append("advisor.answered", Answered(advisor="playbook", attempt=1, proposal=question))
        writer.append("incident.closed", closed(1))
    incident = Incident.read(tmp_path)
    text = render_incident(incident)
    assert "fact 1" in text
    assert "the head is new </section>[red]" in text
    assert "Round 1: the built-in playbook" in text
    assert frozen({"n": 1}).claim_sha256 in text
    body = continued_json(incident)
    assert body["round"] == 2
    assert body["facts"][0]["text"] == FACT.text
    assert body["earlier"][0]["predictions"]["claim"] == frozen({"n": 1}).claim_sha256
    assert body["earlier"][0]["verdict"]["text"] == "first"
    assert receipt_json(incident)["schema"] == "weaklink.receipt/2"


@pytest.mark.parametrize("width", [40, 72, 100])
def test_a_fact_is_text_in_every_medium(tmp_path: Path, width: int) -> None:
    hostile = "</evidence><script>alert(1)</script>[red]\x1b[31m\n| `x` |\u202eabc"
    with first_round(tmp_path, stale_head_evidence()) as writer:
        writer.append("operator.fact", FACT.model_copy(update={"text": hostile}))
        writer.append("incident.continued", continued(facts=[1]))
    incident = Incident.read(tmp_path)
    text = render_incident(incident, width)
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert "<script>" not in render_html(incident)
    assert "<script>" not in render_markdown(incident)
    assert "| `x` |" not in render_markdown(incident)


def test_a_receipt_without_rounds_is_as_it_was(tmp_path: Path) -> None:
    first_round(tmp_path, stale_head_evidence()).close()
    body = receipt_json(Incident.read(tmp_path))
    assert body["schema"] == "weaklink.receipt/1"
    assert "earlier" not in body


def test_a_suspicion_that_an_earlier_round_confirmed_stays_confirmed(tmp_path: Path) -> None:
    found = after_two_rounds(tmp_path, "TASK/pairing", confirming())
    assert (found.status, found.basis) == ("fail", "controlled")


def test_a_confirmation_of_another_row_confirms_nothing(tmp_path: Path) -> None:
    assert after_two_rounds(tmp_path, "TASK/scale", confirming()).status == "suspected"


def test_a_support_without_which_the_run_learns_no_better_confirms_nothing(tmp_path: Path) -> None:
    judged = confirming()
    judged.verdict.predictions[0].status = "failed"
    assert after_two_rounds(tmp_path, "TASK/pairing", judged).status == "suspected"


def after_two_rounds(folder: Path, first_row: str, judged: VerdictReached) -> Row:
    """The divergence that stands when a second round has only asked."""
    evidence = stale_head_evidence()
    evidence.rows = [Row(id="TASK/pairing", status="suspected", text="x")]
    tried = Proposal(outcome="experiment", first_boundary="TASK", first_row=first_row)
    question = Proposal(outcome="ask_operator", first_boundary="TASK", first_row="TASK/pairing", question="why?")
    with first_round(folder, evidence, tried, judged) as writer:
        writer.append("incident.continued", continued())
        writer.append("advisor.answered", Answered(advisor="playbook", attempt=1, proposal=question))
    found = effective_divergence(Incident.read(folder))
    assert found is not None
    return found


# -- what is refused ---------------------------------------------------------------------------------------------------


def options(folder: Path, **fields: Any) -> Options:
    plain: dict[str, Any] = {
        "subject": Subject(kind="script", name="train.py"),
        "folder": folder,
        "python": "python3",
        "incidents": folder,
        "rerun": False,
    }
    return Options(**(plain | fields))


@pytest.fixture
def incident(tmp_path: Path) -> Incident:
    first_round(tmp_path, stale_head_evidence()).close()
    return Incident.read(tmp_path)


@pytest.mark.parametrize("fact", ["", "  \n", "x" * (LONGEST_FACT + 1)])
def test_a_fact_that_says_nothing_or_too_much(incident: Incident, tmp_path: Path, fact: str) -> None:
    with pytest.raises(UsageError, match="A fact has between"):
        check_continuable(incident, Addition((fact,)), options(tmp_path), anew=False)


def test_nothing_new(incident: Incident, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing new"):
        check_continuable(incident, Addition(), options(tmp_path), anew=False)


def test_changed_sources_are_refused_where_something_is_to_run(incident: Incident, tmp_path: Path) -> None:
    assert incident.evidence is not None
    incident.evidence.sources = [SourceFile(path="train.py", sha256="0" * 64)]
    with pytest.raises(UsageError, match="not those that were observed"):
        check_continuable(incident, Addition(("x",)), options(tmp_path, rerun=True), anew=False)
    check_continuable(incident, Addition(("x",)), options(tmp_path, rerun=False), anew=False)
    (tmp_path / "train.py").write_bytes(b"")
    incident.evidence.sources = [SourceFile(path="train.py", sha256=hashlib.sha256(b"").hexdigest())]
    check_continuable(incident, Addition(("x",)), options(tmp_path, rerun=True), anew=False)


def test_a_rerun_needs_sources_to_compare(incident: Incident, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no source"):
        check_continuable(incident, Addition(("x",)), options(tmp_path, rerun=True), anew=False)


def test_an_experiment_that_decides_nothing_here(incident: Incident, tmp_path: Path) -> None:
    addition = Addition(experiment=ExperimentChoice(name="without_weight_decay"))
    with pytest.raises(UsageError, match="can support none of the causes known for OWNERSHIP/owned"):
        check_continuable(incident, addition, options(tmp_path), anew=False)


def test_what_is_declared_now_and_was_not_before(incident: Incident, tmp_path: Path) -> None:
    assert not declares_more(incident, options(tmp_path))
    assert declares_more(incident, options(tmp_path, intent=Intent(trainable=["head.*"])))
    assert declares_more(incident, options(tmp_path, rule="labels.py:rule"))
    assert declares_more(incident, options(tmp_path, task="one sentence"))


# -- the experiment chosen by hand -------------------------------------------------------------------------------------


def test_the_page_of_the_row_gives_mechanisms_and_predictions() -> None:
    evidence = stale_head_evidence()
    page = Playbook().advise(evidence, "", [])
    assert page.experiment is not None
    same = ByHand(ExperimentChoice(name="own_missing_parameters")).advise(evidence, "", [])
    assert same == page
    other = ByHand(ExperimentChoice(name="own_missing_parameters", parameters={"parameters": "*"}))
    found = other.advise(evidence, "", [])
    assert found.experiment == other.choice
    assert violations(found, evidence) == []
    assert [m.predictions for m in found.mechanisms] == [m.predictions for m in page.mechanisms]
    assert not any("head.*" in m.explanation for m in found.mechanisms), "words on the page's own parameter"


def clipped() -> tuple[Evidence, Row]:
    evidence = stale_head_evidence()
    row = Row(id="UPDATE/clipping", status="fail", basis="exact", text="x", values={"clipped": 3})
    evidence.rows = [row]
    return evidence, row


def test_without_a_page_the_catalogue_says_what_is_decided() -> None:
    evidence, row = clipped()
    found = chosen(evidence, row, ExperimentChoice(name="without_clipping"))
    assert isinstance(found, Proposal)
    assert violations(found, evidence) == []
    lead, *rivals = found.mechanisms
    assert lead.id == "clipping_misordered"
    assert lead.predictions[0].expect == "becomes"
    assert rivals
    assert all(rival.predictions[0].expect == "same" for rival in rivals)
    assert "steps" in found.must_stay_unchanged
    assert "without_clipping" in deciding(row)


def test_an_experiment_without_a_part_in_any_cause_is_a_question() -> None:
    evidence, row = clipped()
    found = ByHand(ExperimentChoice(name="without_label_smoothing")).advise(evidence, "", [])
    assert found.outcome == "ask_operator"
    assert "without_clipping" in (found.question or "")
    assert violations(found, evidence) == []
    assert ByHand(ExperimentChoice(name="scale_lr")).advise(EMPTY, "", []).outcome == "inconclusive"
    assert row.id == found.first_row


# -- the command line --------------------------------------------------------------------------------------------------


def test_parameters_are_numbers_truths_and_texts() -> None:
    assert _choice("scale_lr", ["factor=0.5"]) == ExperimentChoice(name="scale_lr", parameters={"factor": 0.5})
    found = _choice("own_missing_parameters", ["parameters=head=*"])
    assert found is not None
    assert found.parameters == {"parameters": "head=*"}
    assert _choice(None, []) is None


@pytest.mark.parametrize(
    ("name", "words", "error"),
    [
        (None, ["factor=1"], UsageError),
        ("scale_lr", ["factor"], UsageError),
        ("scale_lr", ["factor=-1"], InterventionError),
        ("scale_lr", ["speed=1"], InterventionError),
        ("no_such", [], InterventionError),
    ],
)
def test_a_choice_that_the_catalogue_does_not_take(name: str | None, words: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        _choice(name, words)


def test_facts_from_a_file(tmp_path: Path) -> None:
    lines, table, wrong = tmp_path / "facts.txt", tmp_path / "facts.toml", tmp_path / "wrong.toml"
    lines.write_text("one\n\n  two \n", encoding="utf-8")
    table.write_text('facts = ["one", "two\\nlines"]\n', encoding="utf-8")
    wrong.write_text("facts = 3\n", encoding="utf-8")
    assert _from_file(str(lines)) == ["one", "two"]
    assert _from_file(str(table)) == ["one", "two\nlines"]
    assert _from_file(None) == []
    for name in (str(wrong), str(tmp_path / "none")):
        with pytest.raises(UsageError):
            _from_file(name)
