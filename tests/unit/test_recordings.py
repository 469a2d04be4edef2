"""Conversations as files: saved, labelled, held again offline."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_record_incident import opened
from test_reporters_samples import asked_model, exchange

from weaklink.agent.conversation.messages import Form, Message
from weaklink.agent.conversation.recordings import (
    Recorded,
    RecordingError,
    read_recording,
    recording_of,
    recording_text,
)
from weaklink.agent.progress import Progress
from weaklink.agent.record.bodies import OperatorFact
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident
from weaklink.collector.errors import UsageError

FORM = Form("answer", {})


def spoken(folder: Path) -> Incident:
    """An incident in which a model said two things, and the operator one between."""
    with RecordWriter(folder / "events.jsonl") as writer:
        writer.append("incident.opened", opened(folder))
        writer.append("advisor.asked", asked_model())
        writer.append("advisor.exchanged", exchange(1, "first"))
        writer.append("operator.fact", OperatorFact(number=1, text="it is meant", given="2026-11-30T09:05:07+00:00"))
        writer.append("advisor.exchanged", exchange(2, "second"))
    return Incident.read(folder)


def test_a_conversation_is_kept_with_its_label(tmp_path: Path) -> None:
    incident = spoken(tmp_path)
    kept = recording_of(incident)
    assert (kept.model, kept.endpoint, kept.spoken) == ("small-model", "127.0.0.1:8080", incident.opened.created)
    assert [each.reply.text for each in kept.replies] == ["first", "second"]
    assert kept.operator == ["it is meant"]


def test_it_is_held_again_in_order_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    path.write_text(recording_text(recording_of(spoken(tmp_path))), encoding="utf-8")
    speaker = Recorded(read_recording(path), path, Progress())
    messages = [Message(role="user", content="anything")]
    assert [speaker.reply(messages, FORM).text for _ in range(2)] == ["first", "second"]
    with pytest.raises(RecordingError, match="ends after 2 replies") as ended:
        speaker.reply(messages, FORM)
    assert ended.value.exit_code == 3


def test_a_conversation_that_differs_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speaker = Recorded(recording_of(spoken(tmp_path)), tmp_path, Progress())
    for _ in range(2):
        speaker.reply([Message(role="user", content="something else")], FORM)
    assert capsys.readouterr().err.count("differs from the recording from reply 1 on") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "There is no such recording"),
        ("", "no recording of schema"),
        ('{"schema": "weaklink.recording/2"}', "no recording of schema"),
        ("\x00\xff", "no recording of schema"),
    ],
)
def test_a_missing_or_damaged_recording_names_the_command_that_makes_one(
    tmp_path: Path, text: str | None, says: str
) -> None:
    path = tmp_path / "recording.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError, match=says) as refused:
        read_recording(path)
    assert "weaklink export INCIDENT --format recording" in str(refused.value.hint)
    assert refused.value.exit_code == 3


def test_an_incident_without_a_model_has_no_conversation(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "events.jsonl") as writer:
        writer.append("incident.opened", opened(tmp_path))
    with pytest.raises(UsageError, match="No language model spoke"):
        recording_of(Incident.read(tmp_path))
