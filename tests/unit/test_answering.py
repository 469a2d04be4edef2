"""An answer that was handed in: what is refused before anything is written, what is recorded, who is said to speak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evidence_samples import stale_head_evidence
from fault_samples import run
from test_record_incident import opened

from weaklink.agent.advisors.given import LARGEST_ANSWER, LONGEST_LABEL, Given
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.answering import _shown, answer_incident, recorded_options
from weaklink.agent.asked import Told
from weaklink.agent.cli.commands.answer import read_given
from weaklink.agent.errors import AdvisorError, ContractNotMetError
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import SourceCitation
from weaklink.agent.reading.library import Library
from weaklink.agent.record.bodies import Closed, Observed
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.html import render_html
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.markdown import render_markdown
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Finished
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.errors import UsageError, WeaklinkError
from weaklink.collector.evidence import Evidence


def observed(folder: Path, evidence: Evidence | None = None) -> Incident:
    """An incident whose answer is waited for."""
    folder.mkdir(exist_ok=True)
    with RecordWriter(folder) as writer:
        writer.append("incident.opened", opened(folder))
        body = Observed(evidence=evidence or stale_head_evidence(), evidence_sha256="0" * 64)
        writer.append("evidence.observed", body)
        writer.append("incident.closed", Closed(status=IncidentStatus(), exit_code=1))
    return Incident.read(folder)


def good(evidence: Evidence | None = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(Playbook().advise(evidence or stale_head_evidence(), "", []).model_dump_json())
    return body


def hand_in(folder: Path, body: dict[str, Any] | str, name: str = "paste", said_by: str | None = None) -> Finished:
    incident = Incident.read(folder)
    text = body if isinstance(body, str) else json.dumps(body)
    options = recorded_options(incident, folder.parent, None, 60.0, rerun=False)
    return answer_incident(incident, Given(name, text, said_by), options, Progress())


def test_an_accepted_answer_is_frozen_and_waits_for_its_reruns(tmp_path: Path) -> None:
    observed(tmp_path / "i")
    finished = hand_in(tmp_path / "i", f"I think:\n```json\n{json.dumps(good())}\n```", said_by="a model")
    incident = finished.incident
    assert finished.exit_code == 1
    assert incident.frozen is not None
    assert (incident.verdict, incident.reruns) == (None, [])
    assert (incident.asked[-1].advisor, incident.asked[-1].model) == ("paste", "a model")
    assert incident.answered[-1].text is not None
    assert incident.answered[-1].text.startswith("I think:")
    assert incident.beside is not None, "the playbook's answer stands beside it"
    assert check_record(tmp_path / "i").intact


def test_a_refused_answer_is_recorded_with_every_rule_it_broke_and_can_be_answered_again(tmp_path: Path) -> None:
    observed(tmp_path / "i")
    broken = {**good(), "must_stay_unchanged": [], "first_boundary": "UPDATE"}
    with pytest.raises(ContractNotMetError) as caught:
        hand_in(tmp_path / "i", broken)
    assert caught.value.exit_code == 3
    recorded = Incident.read(tmp_path / "i")
    assert list(caught.value.violations) == recorded.answered[-1].violations
    assert caught.value.message.split("\n")[1:] == [f"- {text}" for text in recorded.answered[-1].violations]
    assert recorded.failed is not None
    assert recorded.failed.kind == "contract_not_met"
    assert [kind for _, kind, _ in recorded.events][-5:] == [
        "playbook.answered",
        "advisor.asked",
        "advisor.answered",
        "advisor.failed",
        "incident.closed",
    ]
    assert hand_in(tmp_path / "i", good()).incident.frozen is not None
    assert check_record(tmp_path / "i").intact


def test_words_without_an_answer_are_kept_as_words(tmp_path: Path) -> None:
    observed(tmp_path / "i")
    with pytest.raises(AdvisorError, match="- answer: "):
        hand_in(tmp_path / "i", "The learning rate is too high. Trust me.")
    last = Incident.read(tmp_path / "i").answered[-1]
    assert (last.proposal, last.text) == (None, "The learning rate is too high. Trust me.")


@pytest.mark.parametrize("name", ["paste", "mcp"])
def test_no_report_takes_a_handed_in_answer_for_the_playbooks_or_a_models(tmp_path: Path, name: str) -> None:
    observed(tmp_path / "i")
    incident = hand_in(tmp_path / "i", good(), name, "<b>gpt\x1b[31m</b>").incident
    said = {"paste": "an answer that was handed in (paste, said to be by", "mcp": "a coding agent (mcp, said to be by"}
    terminal, page = render_incident(incident, 300, False), render_html(incident)
    assert said[name] in terminal
    assert "\x1b" not in terminal
    assert said[name] in page
    assert "<b>gpt" not in page
    assert "built-in playbook (fixed rules" not in terminal + page + render_markdown(incident)
    assert diagnosis_json(incident)["advisor"] == name


def test_a_healthy_run_is_never_accused(tmp_path: Path) -> None:
    healthy = run("OWNERSHIP/owned", "pass", {"expected": 2, "owned": 2})
    assert healthy.first_divergence is None
    observed(tmp_path / "i", healthy)
    with pytest.raises(ContractNotMetError):
        hand_in(tmp_path / "i", good())
    body = {"outcome": "nothing_to_repair", "first_boundary": "NONE"}
    finished = hand_in(tmp_path / "i", body)
    assert finished.exit_code == 0
    assert diagnosis_json(finished.incident)["first_divergence"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Given("paste", ""), "The answer is empty."),
        (Given("paste", " \n"), "The answer is empty."),
        (Given("paste", "{}" + " " * LARGEST_ANSWER), "larger than any answer"),
        (Given("paste", "{}", " "), "A label has between 1 and 200 characters."),
        (Given("paste", "{}", "x" * (LONGEST_LABEL + 1)), "A label has between 1 and 200 characters."),
    ],
)
def test_what_is_no_answer_is_refused_before_anything_is_written(tmp_path: Path, given: Given, said: str) -> None:
    incident = observed(tmp_path / "i")
    before = (tmp_path / "i" / "events.jsonl").read_bytes()
    with pytest.raises(UsageError, match=said):
        answer_incident(incident, given, recorded_options(incident, tmp_path, None, 60.0, False), Progress())
    assert (tmp_path / "i" / "events.jsonl").read_bytes() == before


def test_an_incident_without_an_observation_cannot_be_answered(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.append("incident.opened", opened(tmp_path))
    with pytest.raises(UsageError, match="Nothing was observed"):
        hand_in(tmp_path, good())


def test_a_cited_line_is_held_against_the_project_as_it_stands_and_against_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "secret.py").write_text("outside\n", encoding="utf-8")
    opening = Told("", "", Library(tmp_path / "project"), (), 0)
    cited = [("train.py", 2), ("train.py", 99), ("../secret.py", 1), (str(tmp_path / "secret.py"), 1), ("train.py", -1)]
    shown = _shown([SourceCitation(file=file, line=line) for file, line in cited], opening)
    assert {file: lines for file, lines in shown.lines.items() if lines} == {"train.py": {2: "two"}}
    assert _shown([SourceCitation(file="train.py", line=2)], Told("", "", None, (), 0)).lines == {}


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    observed(tmp_path / "i")
    with RecordWriter.resume(tmp_path / "i"), pytest.raises(WeaklinkError, match="Another weaklink is writing"):
        hand_in(tmp_path / "i", good())
    assert check_record(tmp_path / "i").intact


def test_an_answers_file_is_read_whole_and_its_mark_taken_off(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes("\ufeff{} é".encode())
    assert read_given(str(tmp_path / "a.json")) == "{} é"
    for name, said in (
        (str(tmp_path), "cannot be read"),
        ("nowhere.json", "no such answer"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=said):
            read_given(name)
