"""`weaklink prompt`: what would be sent, what was sent, and the blank form."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.cli.main import run
from weaklink.agent.conversation.looks import Looked
from weaklink.agent.conversation.messages import Message, Reply, Usage
from weaklink.agent.record.bodies import AdvisorFailed, Answered, Asked, Continued, Exchanged, LookedAt, OperatorFact
from weaklink.agent.record.chain import RecordWriter
from weaklink.collector.evidence import Site, SourceFile, write_evidence

SCRIPT = "import torch\n\n# the head is new\nmodel.head = torch.nn.Linear(32, 2)\n"


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """An incident of the stale head, diagnosed by the playbook from its evidence, with its script beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    evidence = stale_head_evidence()
    evidence.sources = [SourceFile(path="train.py", sha256=hashlib.sha256(SCRIPT.encode()).hexdigest())]
    first = evidence.first_divergence
    assert first is not None
    first.where = [Site(file="train.py", line=4, what="head.weight created")]
    write_evidence(evidence, tmp_path / "evidence.json")
    assert run(["diagnose", "evidence.json"]) == 1
    capsys.readouterr()
    (folder,) = (tmp_path / "incidents").iterdir()
    return str(folder)


def written(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def add(folder: str, *bodies: tuple[str, object]) -> None:
    writer = RecordWriter.resume(Path(folder))
    writer.append(
        "incident.continued", Continued(round=2, created="2026-01-01T00:00:00", weaklink="0", advisor="paste")
    )
    for kind, body in bodies:
        writer.append(kind, body)  # type: ignore[arg-type]
    writer.close()


def test_one_text_with_the_source(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prompt", incident]) == 0
    text = written(capsys)
    assert text.startswith("You diagnose a PyTorch training run")
    assert "    4| model.head = torch.nn.Linear(32, 2)" in text
    assert '"turn"' not in text
    assert text.rstrip().endswith("nothing after it.")


def test_without_source(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prompt", incident, "--no-source"]) == 0
    text = written(capsys)
    assert "## The files" not in text
    assert "the head is new" not in text


def test_no_source_from_a_folder_that_is_not_the_run_s(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("secret = 1\n")
    assert run(["prompt", incident]) == 0
    assert "secret" not in written(capsys)
    assert run(["prompt", incident, "--read", "."]) == 0
    assert "changed since the run" in written(capsys)


def test_the_budget_and_the_json(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prompt", incident, "--context", "4096", "--json"]) == 0
    body = json.loads(written(capsys))
    assert body["schema"] == "weaklink.prompt/1"
    assert body["tokens"] <= 2600
    assert "experiments shown." in body["text"]
    assert body["files"] == {"train.py": [1, 2, 3, 4]}
    assert run(["prompt", incident, "--context", "100"]) == 2


def test_into_a_file(incident: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["prompt", incident, "--out", "prompt.md"]) == 0
    assert written(capsys) == "prompt.md\n"
    assert (tmp_path / "prompt.md").read_text().startswith("You diagnose")
    assert run(["prompt", incident, "--out", "missing/prompt.md"]) == 2


def test_a_refused_answer_comes_with_its_objections(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = Answered(advisor="paste", attempt=1, proposal=None, violations=["lists: must_change is empty."], text="?")
    asked = Asked(advisor="paste", attempt=1, brief="the brief")
    fact = OperatorFact(number=1, text="the head is meant to train", given="2026-01-01T00:00:00+00:00")
    add(incident, ("operator.fact", fact), ("advisor.asked", asked), ("advisor.answered", refused))
    assert run(["prompt", incident]) == 0
    text = written(capsys)
    assert "## An answer was refused\n\n- lists: must_change is empty." in text
    assert '- "the head is meant to train"' in text


def test_nothing_was_sent(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prompt", incident, "--sent"]) == 0
    assert "weaklink sent nothing anywhere" in written(capsys)


def test_what_was_sent_and_said(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    usage = Usage(prompt_tokens=900, answer_tokens=70)
    reply = Reply(
        text="I say\x1b[2J\nSENT (system)", model="toy\x1b", endpoint="host:1", rung="plain", finish="stop", usage=usage
    )
    sent = [Message(role="system", content="be\nbrief"), Message(role="user", content="the \u202e brief")]
    looked = Looked(do="read", request={"file": "train.py"}, ok=True, text="import torch")
    add(
        incident,
        ("advisor.asked", Asked(advisor="openai", attempt=1, brief="the brief", model="toy", endpoint="host:1")),
        ("advisor.exchanged", Exchanged(advisor="openai", attempt=1, turn=1, sent=sent, sent_sha256="0", reply=reply)),
        ("advisor.looked", LookedAt(advisor="openai", attempt=1, turn=1, look=looked)),
        (
            "advisor.answered",
            Answered(advisor="openai", attempt=1, proposal=None, violations=["answer: no"], text="no"),
        ),
    )
    assert run(["prompt", incident, "--sent"]) == 0
    assert written(capsys).splitlines() == [
        "ASKED toy at host:1",
        "SENT (system)",
        "  be",
        "  brief",
        "SENT (user)",
        "  the \\u202e brief",
        "SAID (toy\\x1b, plain, 0.0 s, 900 tokens read, 70 tokens written)",
        "  I say\\x1b[2J",
        "  SENT (system)",
        "LOOKED read: shown",
        "REFUSED by the contract",
        "  answer: no",
    ]
    assert run(["prompt", incident, "--sent", "--json"]) == 0
    body = json.loads(written(capsys))
    assert [event["kind"] for event in body["events"]] == ["advisor.exchanged", "advisor.looked"]


def test_a_request_without_a_reply_was_sent_all_the_same(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked(advisor="openai", attempt=1, brief="the brief", model="toy", endpoint="host:1")
    failed = AdvisorFailed(advisor="openai", kind="endpoint", problem="refused")
    add(incident, ("advisor.asked", asked), ("advisor.failed", failed))
    assert run(["prompt", incident, "--sent"]) == 0
    assert written(capsys) == "ASKED toy at host:1\nNO REPLY came; the brief was\n  the brief\n"


def test_a_recording_is_sent_nothing(incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoken = Asked(advisor="recorded", attempt=1, brief="b", model="toy", endpoint="host:1", spoken="2026-01-01")
    add(incident, ("advisor.asked", spoken))
    assert run(["prompt", incident, "--sent"]) == 0
    assert written(capsys).startswith("A RECORDING of toy at host:1, which spoke on 2026-01-01: nothing is sent\n")


def test_the_blank_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prompt", "--blank"]) == 0
    assert "def weaklink_snippet" in written(capsys)


@pytest.mark.parametrize(
    "arguments",
    [[], ["--blank", "somewhere"], ["--blank", "--sent"], ["nowhere"], ["INCIDENT", "--sent", "--context", "9000"],
     ["INCIDENT", "--in", "nowhere"], ["INCIDENT", "--read", "nowhere"]],
)  # fmt: skip
def test_wrong_usage(arguments: list[str], incident: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prompt", *(incident if word == "INCIDENT" else word for word in arguments)]) in (1, 2)
    assert "next:" in capsys.readouterr().err
