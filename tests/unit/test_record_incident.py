"""Reading a record back into typed bodies, and making the folder of a new one."""

from __future__ import annotations

import math
import re
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weaklink.agent.proposal import Proposal
from weaklink.agent.record import line as lines
from weaklink.agent.record.bodies import (
    Amended,
    Answered,
    Asked,
    Closed,
    Frozen,
    Observed,
    Opened,
    RerunFinished,
    RerunStarted,
    VerdictReached,
)
from weaklink.agent.record.canonical import as_number, digest
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.errors import RecordDamagedError, RecordMissingError
from weaklink.agent.record.incident import Incident, new_incident
from weaklink.agent.verdict import IncidentStatus, Verdict
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    Outcome,
    ParameterRecord,
    Row,
    Series,
    StepRecord,
    Subject,
)

WHEN = datetime(2026, 11, 30, 9, 5, 7)


def evidence(**fields: Any) -> Evidence:
    plain: dict[str, Any] = {
        # An argument that reads like a float is text, and stays text.
        "subject": Subject(kind="script", name="train.py", argv=["--lr", "0.5", "NaN"]),
        "outcome": Outcome(ended="completed"),
        "environment": Environment(torch="2.13.0", python="3.11.7", platform="linux"),
        "branch": "flat",
        "rows": [],
    }
    return Evidence(**(plain | fields))


def opened(folder: Path) -> Opened:
    return Opened(
        id=folder.name,
        created=WHEN.isoformat(),
        weaklink="0.1.0",
        subject=evidence().subject,
        source="script",
        folder=str(folder),
        python="python3",
        advisor="playbook",
    )


def answered(row: str, violations: list[str]) -> Answered:
    proposal = Proposal(outcome="inconclusive", first_boundary="UPDATE", first_row=row)
    return Answered(advisor="playbook", attempt=1, proposal=proposal, violations=violations)


def frozen(claim: dict[str, Any]) -> Frozen:
    return Frozen(claim_sha256=digest(claim), context_sha256=digest({}), claim=claim, context={})


def finished(seconds: float) -> RerunFinished:
    return RerunFinished(role="control", evidence=None, problem="killed", seconds=seconds)


def verdict(text: str) -> VerdictReached:
    reached = Verdict(controls_agree=True, observed_prefix_agrees=None, applied=True, text=text)
    return VerdictReached(verdict=reached, status=IncidentStatus(cause="supported"))


def closed(exit_code: int) -> Closed:
    return Closed(status=IncidentStatus(), exit_code=exit_code)


def write(folder: Path, *events: tuple[str, Any], observation: Evidence | None = None) -> str:
    with RecordWriter(folder / "events.jsonl") as writer:
        writer.append("incident.opened", opened(folder))
        writer.append("evidence.observed", Observed(evidence=observation or evidence(), evidence_sha256="0" * 64))
        for kind, body in events:
            writer.append(kind, body)
        return writer.head


START = RerunStarted(role="control", intervention=None, horizon=8)
HISTORY: list[tuple[str, Any]] = [
    ("advisor.asked", Asked(advisor="playbook", attempt=1, brief="b")),
    ("advisor.answered", answered("UPDATE/first", [])),
    ("prediction.frozen", frozen({"n": 1})),
    ("rerun.started", START),
    ("rerun.finished", finished(1.0)),
    ("verdict.reached", verdict("old")),
    ("advisor.answered", answered("UPDATE/second", [])),
    ("advisor.answered", answered("UPDATE/third", ["cites a row that is not there"])),
    ("prediction.frozen", frozen({"n": 2})),
    ("rerun.started", START),
    ("rerun.finished", finished(2.0)),
    ("rerun.finished", finished(math.inf)),
]


def test_everything_is_read_back(tmp_path: Path) -> None:
    later = [
        ("verdict.reached", verdict("new")),
        ("incident.closed", closed(1)),
        ("incident.amended", Amended(of=3, text="was the other row")),
        ("incident.closed", closed(0)),
    ]
    head = write(tmp_path, *HISTORY, *later)
    incident = Incident.read(tmp_path)
    assert incident.folder == tmp_path
    assert incident.opened == opened(tmp_path)
    assert incident.observed is not None
    assert incident.evidence == evidence()
    assert [asked.brief for asked in incident.asked] == ["b"]
    assert [answer.proposal.first_row for answer in incident.answered] == [
        "UPDATE/first",
        "UPDATE/second",
        "UPDATE/third",
    ]
    assert incident.proposal is not None
    assert incident.proposal.first_row == "UPDATE/second", "the last one that broke no rule"
    assert incident.frozen is not None
    assert incident.frozen.claim == {"n": 2}
    assert [rerun.seconds for rerun in incident.reruns] == [2.0, math.inf]
    assert incident.verdict is not None
    assert incident.verdict.verdict.text == "new"
    assert [amended.of for amended in incident.amendments] == [3]
    assert incident.closed is not None
    assert incident.closed.exit_code == 0
    assert incident.head == head
    assert [seq for seq, _, _ in incident.events] == list(range(18))
    assert [kind for _, kind, _ in incident.events[2:]] == [kind for kind, _ in [*HISTORY, *later]]
    assert incident.damage is None


def test_a_verdict_on_an_earlier_prediction_is_not_that_of_the_last(tmp_path: Path) -> None:
    write(tmp_path, *HISTORY)
    assert Incident.read(tmp_path).verdict is None


def test_a_record_of_two_lines(tmp_path: Path) -> None:
    write(tmp_path)
    incident = Incident.read(tmp_path)
    assert incident.evidence is not None
    assert (incident.proposal, incident.frozen, incident.verdict, incident.closed) == (None, None, None, None)


def test_the_events_file_will_do(tmp_path: Path) -> None:
    write(tmp_path)
    assert Incident.read(tmp_path / "events.jsonl") == Incident.read(tmp_path)


def test_the_digest_can_be_recomputed_from_what_was_read(tmp_path: Path) -> None:
    write(tmp_path, ("prediction.frozen", frozen({"tolerance": 0.1, "value": math.nan, "none": None})))
    read = Incident.read(tmp_path).frozen
    assert read is not None
    assert digest(read.claim) == read.claim_sha256
    assert as_number(read.claim["tolerance"]) == 0.1


def odd_evidence() -> Evidence:
    return evidence(
        outcome=Outcome(ended="completed", seconds=1e-05),
        parameters=[
            ParameterRecord(
                name="</evidence>[red]\N{SNOWMAN}",
                shape=[2, 3],
                dtype="float32",
                requires_grad=True,
                in_model=True,
                owned=True,
                registered=True,
                gradient_norm_first=math.nan,
                delta_first=math.inf,
                delta_net=None,
                norm=-0.0,
            )
        ],
        steps=[StepRecord(step=1, lr=[0.1, 1e-300], gradient_norm=-math.inf)],
        losses=Series(index=[1, 2, 3], value=[2.302585092994046, math.nan, 5e-324]),
        fingerprint=Fingerprint(loss=math.nan),
    )


def test_nan_infinity_and_none_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, observation=odd_evidence())
    read = Incident.read(tmp_path).evidence
    assert read is not None
    # repr, because NaN is not equal to itself and -0.0 is equal to 0.0.
    assert repr(read) == repr(odd_evidence())


@pytest.mark.parametrize("value", [0.5, math.nan, -math.inf, 1e-05])
def test_a_float_among_row_values_is_still_the_same_number(tmp_path: Path, value: float) -> None:
    row = Row(id="UPDATE/moved", status="pass", text="x", values={"v": value})
    write(tmp_path, observation=evidence(rows=[row]))
    read = Incident.read(tmp_path).evidence
    assert read is not None
    assert repr(as_number(read.rows[0].values["v"])) == repr(value)


@pytest.mark.parametrize("value", [True, 3, "lr", "0.50", "nan", None, ["a", "b"], [1, 2], []])
def test_other_row_values_come_back_as_they_were(tmp_path: Path, value: Any) -> None:
    row = Row(id="UPDATE/moved", status="pass", text="x", values={"v": value})
    write(tmp_path, observation=evidence(rows=[row]))
    read = Incident.read(tmp_path).evidence
    assert read is not None
    assert repr(read.rows[0].values["v"]) == repr(value)


def test_a_damaged_record_is_refused_with_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, *HISTORY)
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RecordDamagedError, match="Line 14 is bad") as caught:
        Incident.read(tmp_path)
    assert caught.value.exit_code == 1
    assert caught.value.about == str(path)


def test_tolerant_reads_up_to_the_last_good_line(tmp_path: Path) -> None:
    write(tmp_path, *HISTORY)
    path = tmp_path / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    incident = Incident.read(tmp_path, tolerant=True)
    assert [rerun.seconds for rerun in incident.reruns] == [2.0]
    assert len(incident.events) == 13
    assert incident.head == lines.hash_line(whole.splitlines()[12])
    assert "Line 14" in (incident.damage or "")


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"\x00" * 100])
def test_nothing_good_is_refused_even_when_tolerant(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "events.jsonl").write_bytes(content)
    with pytest.raises(RecordDamagedError):
        Incident.read(tmp_path, tolerant=True)


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(RecordMissingError):
        Incident.read(tmp_path)


def test_a_body_of_another_shape_is_named(tmp_path: Path) -> None:
    head = write(tmp_path)
    path = tmp_path / "events.jsonl"
    strange = lines.encode(2, "incident.amended", head, {"of": "first", "text": "x"})
    path.write_bytes(path.read_bytes() + strange + b"\n")
    with pytest.raises(RecordDamagedError, match=r"Line 3 is bad. Its body is not that of incident.amended: of: "):
        Incident.read(tmp_path)
    assert len(Incident.read(tmp_path, tolerant=True).events) == 2


def test_a_new_folder_has_time_stem_and_four_digits(tmp_path: Path) -> None:
    folder = new_incident(tmp_path / "a" / "incidents", "train", WHEN)
    assert folder.is_dir()
    assert folder.parent == tmp_path / "a" / "incidents"
    assert re.fullmatch(r"20261130-090507-train-[0-9a-f]{4}", folder.name)


def test_two_incidents_of_one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(drawn))
    names = [new_incident(tmp_path, "train", WHEN).name[-4:] for _ in range(2)]
    assert names == ["aaaa", "bbbb"]


def test_no_free_name_is_an_error_and_not_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "aaaa")
    new_incident(tmp_path, "train", WHEN)
    with pytest.raises(StorageError):
        new_incident(tmp_path, "train", WHEN)


def test_a_long_stem_is_cut(tmp_path: Path) -> None:
    assert new_incident(tmp_path, "x" * 300, WHEN).name[:-5] == "20261130-090507-" + "x" * 40


@given(st.text(st.characters()))
def test_any_stem_makes_a_plain_folder_name(tmp_path_factory: pytest.TempPathFactory, stem: str) -> None:
    folder = new_incident(tmp_path_factory.mktemp("root"), stem, WHEN)
    assert re.fullmatch(r"20261130-090507-[A-Za-z0-9_-]{1,40}-[0-9a-f]{4}", folder.name)


@pytest.mark.parametrize("place", ["file", "file/below", "null\0byte"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, place: str) -> None:
    # Tests run as root, whom permission bits do not stop: a path below a file stops everybody.
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made") as caught:
        new_incident(tmp_path / place, "train", WHEN)
    assert "--incidents DIR" in (caught.value.hint or "")
    assert caught.value.about
