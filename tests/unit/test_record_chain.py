"""Writing a record: the bytes, the order, the disk that is full, and two writers."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weaklink.agent.record import line as lines
from weaklink.agent.record.bodies import Amended, Closed, Frozen, Observed, Opened, RerunStarted
from weaklink.agent.record.canonical import digest
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.check import check_record
from weaklink.agent.record.errors import RecordDamagedError, RecordError, RecordMissingError
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import Environment, Evidence, Outcome, Row, Subject

SUBJECT = Subject(kind="script", name="train.py", argv=["--lr", "0.5"])


def opened() -> Opened:
    return Opened(
        id="x",
        created="2026-11-30T12:00:00Z",
        weaklink="0.1.0",
        subject=SUBJECT,
        source="script",
        folder="/home/ö",
        python="/usr/bin/python3",
        advisor="playbook",
    )


def observed() -> Observed:
    evidence = Evidence(
        subject=SUBJECT,
        outcome=Outcome(ended="completed", seconds=1.5),
        environment=Environment(torch="2.13.0", python="3.11.7", platform="linux"),
        branch="flat",
        rows=[Row(id="UPDATE/moved", status="pass", text="moved", values={"loss": math.nan, "best": None})],
    )
    return Observed(evidence=evidence, evidence_sha256="0" * 64)


def frozen(claim: dict[str, Any] | None = None) -> Frozen:
    claim = {"tolerance": 0.5, "nothing": math.nan} if claim is None else claim
    return Frozen(claim_sha256=digest(claim), context_sha256=digest({}), claim=claim, context={})


def closed() -> Closed:
    return Closed(status=IncidentStatus(), exit_code=0)


def stored(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_each_line_is_chained_to_the_bytes_of_the_one_before(path: Path) -> None:
    with RecordWriter(path) as writer:
        returned = [
            writer.append("incident.opened", opened()),
            writer.append("evidence.observed", observed()),
            writer.append("incident.closed", closed()),
        ]
        assert writer.count == 3
        assert writer.head == returned[-1]
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    hashes = [hashlib.sha256(line).hexdigest() for line in raw.splitlines()]
    assert returned == hashes
    assert [event["prev"] for event in stored(path)] == ["0" * 64, *hashes[:2]]
    assert [event["seq"] for event in stored(path)] == [0, 1, 2]
    assert [event["v"] for event in stored(path)] == [1, 1, 1]


def test_bodies_keep_nan_and_none_apart_and_use_file_names(path: Path) -> None:
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        writer.append("evidence.observed", observed())
        writer.append("prediction.frozen", frozen())
    _, second, third = stored(path)
    evidence = second["body"]["evidence"]
    assert evidence["schema"] == "weaklink.evidence/1"
    assert evidence["rows"][0]["values"] == {"loss": "NaN", "best": None}
    assert evidence["outcome"]["seconds"] == "1.5"
    assert third["body"]["claim"] == {"tolerance": "0.5", "nothing": "NaN"}


def test_a_written_record_passes_the_check(path: Path) -> None:
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        writer.append("evidence.observed", observed())
        writer.append("prediction.frozen", frozen())
        writer.append("rerun.started", RerunStarted(role="control", intervention=None, horizon=8))
        head = writer.append("incident.closed", closed())
    report = check_record(path, expected_head=head)
    assert (report.intact, report.events) == (True, 5), report.problem


def test_a_folder_will_do(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        assert writer.path == tmp_path / "events.jsonl"
    assert writer.path.exists()


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("incident.opend", closed(), "no event of that kind"),
        ("incident.opened", closed(), "is a Opened, not a Closed"),
        ("incident.closed", closed(), "starts with incident.opened"),
    ],
)
def test_a_wrong_event_is_refused_and_nothing_written(path: Path, kind: str, body: Any, message: str) -> None:
    with RecordWriter(path) as writer, pytest.raises(RecordError, match=message):
        writer.append(kind, body)
    assert path.read_bytes() == b""


def test_a_rerun_before_the_prediction_is_refused_and_the_record_goes_on(path: Path) -> None:
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        with pytest.raises(RecordError, match="before any prediction"):
            writer.append("rerun.started", RerunStarted(role="control", intervention=None, horizon=8))
        writer.append("incident.closed", closed())
    assert check_record(path).events == 2
    assert check_record(path).intact


def test_a_digest_of_something_else_is_refused(path: Path) -> None:
    wrong = frozen().model_copy(update={"claim": {"tolerance": 0.25}})
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        writer.append("evidence.observed", observed())
        with pytest.raises(RecordError, match="claim_sha256 is not the digest"):
            writer.append("prediction.frozen", wrong)


@pytest.mark.parametrize("claim", [{"seed": 2**64}, {"ключ": 1}])
def test_a_body_without_canonical_form_is_refused_with_its_path(path: Path, claim: dict[str, Any]) -> None:
    body = Frozen(claim_sha256="", context_sha256="", claim=claim, context={})
    with RecordWriter(path) as writer, pytest.raises(RecordError, match=r"\$\.body\.claim"):
        writer.append("prediction.frozen", body)


def test_a_field_that_would_not_read_back_is_refused(path: Path) -> None:
    body = closed()
    body.exit_code = "zero"  # type: ignore[assignment]
    with RecordWriter(path) as writer, pytest.raises(RecordError, match="exit_code"):
        writer.append("incident.closed", body)


def test_a_line_larger_than_a_reader_takes_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    with RecordWriter(path) as writer, pytest.raises(RecordError, match="a record takes 100"):
        writer.append("incident.opened", opened())
    assert path.read_bytes() == b""


def test_frozen_is_always_synced_and_others_when_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    with RecordWriter(path) as writer:
        assert len(synced) == 1, "the folder, when the file is made"
        writer.append("incident.opened", opened())
        assert len(synced) == 1
        writer.append("evidence.observed", observed(), durable=True)
        assert synced[1:] == [path.stat().st_size]
        writer.append("prediction.frozen", frozen())
        assert synced[2:] == [path.stat().st_size], "synced after the line was written"


def test_a_new_record_never_overwrites_one(path: Path) -> None:
    path.write_bytes(b"something\n")
    with pytest.raises(StorageError, match="already"):
        RecordWriter(path)
    assert path.read_bytes() == b"something\n"


@pytest.mark.parametrize("bad", ["file/events.jsonl", "missing/events.jsonl"])
def test_a_place_that_cannot_be_written(tmp_path: Path, bad: str) -> None:
    # Tests run as root, whom permission bits do not stop: a path below a file stops everybody.
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be") as caught:
        RecordWriter(tmp_path / bad)
    assert "--incidents" in (caught.value.hint or "")
    assert caught.value.about == str(tmp_path / bad)


def fail_with(number: int, after: int) -> Callable[[int, Any], int]:
    """An os.write that takes `after` bytes, then fails for good."""
    real, left = os.write, [after]

    def write(file: int, data: Any) -> int:
        if not left[0]:
            raise OSError(number, os.strerror(number))
        taken = real(file, bytes(data)[: left[0]])
        left[0] -= taken
        return taken

    return write


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("after", [0, 1, 40])
def test_a_failed_write_leaves_an_intact_record(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    with RecordWriter(path) as writer:
        head = writer.append("incident.opened", opened())
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail_with(number, after))
            with pytest.raises(StorageError, match=os.strerror(number)) as caught:
                writer.append("evidence.observed", observed())
        assert caught.value.about == str(path)
        assert caught.value.hint
        report = check_record(path, expected_head=head)
        assert (report.intact, report.events) == (True, 1), report.problem
        # There is space again: the same writer goes on.
        writer.append("incident.closed", closed())
    assert check_record(path).events == 2
    assert check_record(path).intact


def test_a_prediction_that_was_not_written_allows_no_rerun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        writer.append("evidence.observed", observed())
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail_with(errno.ENOSPC, 40))
            with pytest.raises(StorageError, match="No space"):
                writer.append("prediction.frozen", frozen())
        with pytest.raises(RecordError, match="before any prediction"):
            writer.append("rerun.started", RerunStarted(role="control", intervention=None, horizon=8))


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:7]))
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
    assert check_record(path).intact


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad disk"), KeyboardInterrupt()])
def test_a_line_that_did_not_reach_the_disk_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(file: int) -> None:
        raise error

    with RecordWriter(path) as writer:
        head = writer.append("incident.opened", opened())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises((StorageError, KeyboardInterrupt)):
                writer.append("evidence.observed", observed(), durable=True)
        assert writer.head == head
        writer.append("incident.closed", closed())
    report = check_record(path)
    assert (report.intact, report.events) == (True, 2), report.problem


def test_where_a_half_line_cannot_be_removed_nothing_follows_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, length: int) -> None:
        raise OSError(errno.EIO, "bad disk")

    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail_with(errno.ENOSPC, 40))
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(StorageError, match="No space"):
                writer.append("evidence.observed", observed())
        with pytest.raises(StorageError, match="not as weaklink left it"):
            writer.append("incident.closed", closed())
    report = check_record(path)
    assert (report.events, report.bad_line) == (1, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="no file-size limits on Windows")
def test_a_real_file_size_limit(path: Path) -> None:
    """The kernel writes half of the line, then refuses: no mock has that wrong."""
    program = f"""
        import resource, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_record_chain as these
        from pathlib import Path
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        path = Path({str(path)!r})
        writer = these.RecordWriter(path)
        writer.append("incident.opened", these.opened())
        limit = path.stat().st_size + 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            writer.append("evidence.observed", these.observed())
        except these.StorageError as error:
            print("refused:", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "refused:" in done.stdout
    assert "ulimit -f" in done.stdout
    report = check_record(path)
    assert (report.intact, report.events) == (True, 1), report.problem


def test_something_else_wrote_to_the_file(path: Path) -> None:
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        with path.open("ab") as file:
            file.write(b"hello\n")
        with pytest.raises(StorageError, match="not as weaklink left it"):
            writer.append("incident.closed", closed())
    assert path.read_bytes().endswith(b"hello\n"), "what somebody else wrote is not ours to remove"


def test_a_closed_writer_refuses(path: Path) -> None:
    writer = RecordWriter(path)
    writer.close()
    writer.close()
    with pytest.raises(RecordError, match="closed"):
        writer.append("incident.opened", opened())


def written(path: Path) -> str:
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        writer.append("evidence.observed", observed())
        writer.append("prediction.frozen", frozen())
        return writer.append("incident.closed", closed())


def test_resume_goes_on_with_the_chain(path: Path) -> None:
    head = written(path)
    with RecordWriter.resume(path) as writer:
        assert (writer.head, writer.count) == (head, 4)
        writer.append("rerun.started", RerunStarted(role="control", intervention=None, horizon=8))
        writer.append("incident.amended", Amended(of=0, text="the other script"))
    report = check_record(path)
    assert (report.intact, report.events) == (True, 6), report.problem


def test_resume_knows_that_the_incident_was_closed(path: Path) -> None:
    written(path)
    with RecordWriter.resume(path) as writer, pytest.raises(RecordError, match="may not follow"):
        writer.append("prediction.frozen", frozen())


@pytest.mark.parametrize("tail", [b'{"body":{"exit', b"\x00\x00\x00", b"not json\n"])
def test_resume_refuses_a_torn_record_and_leaves_it_alone(path: Path, tail: bytes) -> None:
    written(path)
    before = path.read_bytes() + tail
    path.write_bytes(before)
    with pytest.raises(RecordDamagedError, match="Line 5 is bad") as caught:
        RecordWriter.resume(path)
    assert caught.value.exit_code == 1
    assert path.read_bytes() == before


def test_resume_of_nothing(path: Path) -> None:
    with pytest.raises(RecordMissingError) as caught:
        RecordWriter.resume(path)
    assert caught.value.exit_code == 2
    assert not path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no advisory lock on Windows")
def test_two_writers_of_one_record(path: Path) -> None:
    program = f"""
        from pathlib import Path
        from weaklink.agent.record.chain import RecordWriter
        from weaklink.collector.errors import StorageError
        try:
            RecordWriter.resume(Path({str(path)!r}))
        except StorageError as error:
            print("refused:", error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
        check_record(path)  # reading and closing the same file must not lose the lock
        held = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    free = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "Another weaklink is writing" in held.stdout
    assert free.stdout == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no advisory lock on Windows")
def test_a_file_system_without_locks_is_no_obstacle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RecordWriter(path) as writer:
        writer.append("incident.opened", opened())
    assert check_record(path).intact
