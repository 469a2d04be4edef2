"""Checking a record: every kind of damage is found at its line, and the limits are stated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weaklink.agent.record import line as lines
from weaklink.agent.record.bodies import BODIES
from weaklink.agent.record.canonical import canonical_bytes, digest
from weaklink.agent.record.check import CHAIN_NOTE, CheckReport, check_record
from weaklink.agent.record.errors import RecordMissingError
from weaklink.collector.errors import StorageError, UsageError

CLAIM = {"experiment": "own_parameters", "tolerance": 0.5}
CONTEXT = {"torch": "2.13.0"}
FROZEN = {
    "claim": CLAIM,
    "context": CONTEXT,
    "claim_sha256": digest(CLAIM),
    "context_sha256": digest(CONTEXT),
}
Events = list[tuple[str, dict[str, Any]]]


def good_events() -> Events:
    return [
        ("incident.opened", {"id": "x", "folder": "/home/ö"}),
        ("evidence.observed", {"evidence": {"branch": "flat"}}),
        ("advisor.asked", {"attempt": 1}),
        ("advisor.answered", {"attempt": 1}),
        ("prediction.frozen", FROZEN),
        ("rerun.started", {"role": "control"}),
        ("rerun.finished", {"role": "control", "seconds": 0.25}),
        ("verdict.reached", {"text": "supported"}),
        ("incident.closed", {"exit_code": 1}),
    ]


def chained(events: Events) -> list[bytes]:
    """The lines of a chain that is right in itself, whatever the events are."""
    raw: list[bytes] = []
    for seq, (kind, body) in enumerate(events):
        raw.append(lines.encode(seq, kind, lines.hash_line(raw[-1]) if raw else lines.GENESIS, body))
    return raw


def check(folder: Path, raw: list[bytes], tail: bytes = b"", head: str | None = None) -> CheckReport:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in raw) + tail)
    return check_record(path, expected_head=head)


def assert_bad(report: CheckReport, line: int | None, problem: str) -> None:
    assert not report.intact
    assert report.bad_line == line, report.problem
    assert report.events == (line - 1 if line else report.events)
    assert problem in (report.problem or "")
    assert CHAIN_NOTE in report.note


def test_an_intact_record(tmp_path: Path) -> None:
    raw = chained(good_events())
    head = lines.hash_line(raw[-1])
    report = check(tmp_path, raw, head=f" {head.upper()}\n")
    assert report == CheckReport(
        intact=True,
        path=tmp_path / "events.jsonl",
        events=9,
        head=head,
        frozen=[{"claim": digest(CLAIM), "context": digest(CONTEXT), "seq": 4, "run": True}],
        note=CHAIN_NOTE,
        expected_head_line=9,
    )


def test_a_folder_will_do(tmp_path: Path) -> None:
    check(tmp_path, chained(good_events()))
    assert check_record(tmp_path).intact
    assert check_record(tmp_path).path == tmp_path / "events.jsonl"


def test_the_note_says_what_a_chain_cannot_do(tmp_path: Path) -> None:
    note = check(tmp_path, chained(good_events())).note
    assert "head that somebody kept" in note
    assert "not tamper-proof" in note


def test_known_kinds_are_those_of_the_bodies() -> None:
    assert set(lines.KINDS) == set(BODIES)


@pytest.mark.parametrize("index", range(8))
def test_an_edited_letter_breaks_the_link_of_the_next_line(tmp_path: Path, index: int) -> None:
    raw = chained(good_events())
    event = json.loads(raw[index])
    event["body"]["added"] = "x"
    raw[index] = canonical_bytes(event)
    assert_bad(check(tmp_path, raw), index + 2, "prev is not the hash of line")


def test_any_single_changed_byte_is_found_with_the_kept_head(tmp_path: Path) -> None:
    raw = chained(good_events())
    head = lines.hash_line(raw[-1])
    data = b"".join(line + b"\n" for line in raw)
    path = tmp_path / "events.jsonl"
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        report = check_record(path, expected_head=head)
        assert not report.intact, position
        line = data.count(b"\n", 0, position) + 1
        # The line itself, or the next one whose link it breaks, or the head.
        assert report.bad_line in (line, line + 1, None), position


def test_an_edit_of_the_last_line_shows_only_against_a_kept_head(tmp_path: Path) -> None:
    raw = chained(good_events())
    head = lines.hash_line(raw[-1])
    edited = chained([*good_events()[:-1], ("incident.closed", {"exit_code": 0})])
    assert check(tmp_path, edited).intact
    report = check(tmp_path, edited, head=head)
    assert_bad(report, None, "no line of it has the head you kept")
    assert report.events == 9


def test_a_record_that_went_on_says_where_the_kept_head_is(tmp_path: Path) -> None:
    raw = chained(good_events())
    report = check(tmp_path, raw, head=lines.hash_line(raw[6]))
    assert report.intact
    assert "that of line 7: up to there nothing changed, and 2 events were added since" in report.note
    assert report.expected_head_line == 7


def test_a_cut_record_shows_only_against_a_kept_head(tmp_path: Path) -> None:
    raw = chained(good_events())
    assert check(tmp_path, raw[:-1]).intact
    assert_bad(check(tmp_path, raw[:-1], head=lines.hash_line(raw[-1])), None, "rewritten or cut")


def test_a_bad_line_comes_before_a_wrong_head(tmp_path: Path) -> None:
    raw = chained(good_events())
    assert_bad(check(tmp_path, [*raw[:3], b"{}", *raw[4:]], head="0" * 64), 4, "exactly the keys")


@pytest.mark.parametrize("head", ["", "abc", "g" * 64, "0" * 65])
def test_a_head_that_is_none(tmp_path: Path, head: str) -> None:
    with pytest.raises(UsageError, match="64 hex digits"):
        check(tmp_path, chained(good_events()), head=head)


def test_a_deleted_line(tmp_path: Path) -> None:
    raw = chained(good_events())
    assert_bad(check(tmp_path, raw[:3] + raw[4:]), 4, "seq is 4 and should be 3")


def test_the_first_line_deleted(tmp_path: Path) -> None:
    assert_bad(check(tmp_path, chained(good_events())[1:]), 1, "seq is 1 and should be 0")


def test_swapped_lines(tmp_path: Path) -> None:
    raw = chained(good_events())
    raw[2], raw[3] = raw[3], raw[2]
    assert_bad(check(tmp_path, raw), 3, "seq is 3 and should be 2")


def test_a_doubled_line(tmp_path: Path) -> None:
    raw = chained(good_events())
    assert_bad(check(tmp_path, [*raw, raw[-1]]), 10, "seq is 8 and should be 9")


def test_a_first_line_linked_to_something(tmp_path: Path) -> None:
    first = lines.encode(0, "incident.opened", "1" * 64, {})
    assert_bad(check(tmp_path, [first]), 1, "prev is not 64 zeros")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"hello", "not JSON"),
        (b"", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"\xff\xfe\x00binary", "not UTF-8"),
        (b"[1]", "no JSON object"),
        (b"{}", "exactly the keys"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"n":' + b"1" * 5000 + b"}", "not JSON"),
    ],
)
def test_garbage(tmp_path: Path, line: bytes, problem: str) -> None:
    raw = chained(good_events())
    assert_bad(check(tmp_path, [*raw, line]), 10, problem)
    assert_bad(check(tmp_path, [line, *raw]), 1, problem)


def changed(**fields: Any) -> bytes:
    event = json.loads(chained(good_events())[0])
    event.update(fields)
    return json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"v": 2}, "version 1"),
        ({"v": True}, "version 1"),
        ({"kind": "incident.eaten"}, "kind 'incident.eaten' is unknown"),
        ({"kind": ["x"]}, "is unknown"),
        ({"seq": "0"}, "seq is no integer"),
        ({"seq": False}, "seq is no integer"),
        ({"prev": None}, "prev is no text"),
        ({"body": []}, "body is no JSON object"),
        ({"extra": 1}, "exactly the keys"),
        ({"body": {"x": 0.5}}, "not in canonical form"),
        ({"body": {"x": 2**53}}, "not in canonical form"),
        ({"body": {"é": 1}}, "not in canonical form"),
    ],
)
def test_a_line_that_weaklink_does_not_write(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    assert_bad(check(tmp_path, [changed(**fields)]), 1, problem)


@pytest.mark.parametrize(
    "edit",
    [
        lambda line: line + b" ",
        lambda line: line.replace(b'"seq":', b'"seq": '),
        lambda line: line.replace("ö".encode(), b"\\u00f6"),
        lambda line: line.replace(b'"v":1', b'"v":1,"v":1'),
        lambda line: json.dumps(dict(reversed(json.loads(line).items())), separators=(",", ":")).encode(),
    ],
)
def test_the_same_value_in_other_bytes(tmp_path: Path, edit: Any) -> None:
    raw = chained(good_events())
    raw[0] = edit(raw[0])
    assert_bad(check(tmp_path, raw), 1, "not in canonical form")


def test_windows_line_ends_are_named(tmp_path: Path) -> None:
    raw = [line + b"\r" for line in chained(good_events())]
    assert_bad(check(tmp_path, raw), 1, "Windows line ends")


def test_a_torn_last_line(tmp_path: Path) -> None:
    raw = chained(good_events())
    assert_bad(check(tmp_path, raw[:-1], tail=raw[-1][:50]), 9, "cut short")
    assert_bad(check(tmp_path, raw[:-1], tail=raw[-1]), 9, "cut short")


def rechained(**frozen: Any) -> list[bytes]:
    events = good_events()
    events[4] = ("prediction.frozen", {**FROZEN, **frozen})
    return chained(events)


@pytest.mark.parametrize(
    ("frozen", "problem"),
    [
        ({"claim": {"tolerance": 5.0}}, "claim_sha256 is not the digest"),
        ({"claim_sha256": "0" * 64}, "claim_sha256 is not the digest"),
        ({"context": {}}, "context_sha256 is not the digest"),
        ({"claim": None}, "claim_sha256 is not the digest"),
    ],
)
def test_a_prediction_changed_and_the_chain_rebuilt(tmp_path: Path, frozen: dict[str, Any], problem: str) -> None:
    assert_bad(check(tmp_path, rechained(**frozen)), 5, problem)


def reordered(*kinds: str) -> list[bytes]:
    bodies = dict([*good_events(), ("incident.amended", {"of": 0})])
    return chained([(kind, bodies[kind]) for kind in kinds])


START = ("incident.opened", "evidence.observed")
RUN = ("prediction.frozen", "rerun.started", "rerun.finished", "verdict.reached", "incident.closed")


@pytest.mark.parametrize(
    ("kinds", "line", "problem"),
    [
        (("evidence.observed",), 1, "starts with incident.opened"),
        ((*START, "incident.opened"), 3, "only once"),
        (("incident.opened", "prediction.frozen"), 2, "before any evidence"),
        ((*START, "rerun.started", "prediction.frozen"), 3, "before any prediction.frozen"),
        ((*START, "rerun.finished", "prediction.frozen"), 3, "before any prediction.frozen"),
        ((*START, *RUN, "prediction.frozen"), 8, "may not follow incident.closed"),
        ((*START, *RUN, "evidence.observed"), 8, "may not follow incident.closed"),
        ((*START, *RUN, "advisor.asked"), 8, "may not follow incident.closed"),
        ((*START, *RUN, "incident.amended", "advisor.answered"), 9, "may not follow incident.closed"),
    ],
)
def test_a_wrong_order(tmp_path: Path, kinds: tuple[str, ...], line: int, problem: str) -> None:
    assert_bad(check(tmp_path, reordered(*kinds)), line, problem)


def test_verify_and_amend_may_follow_a_closed_incident(tmp_path: Path) -> None:
    later = ("incident.amended", *RUN[1:], "incident.amended")
    report = check(tmp_path, reordered(*START, "prediction.frozen", "incident.closed", *later))
    assert (report.intact, report.events) == (True, 10), report.problem


def test_a_prediction_that_was_never_run_is_intact_and_noted(tmp_path: Path) -> None:
    report = check(tmp_path, reordered(*START, "prediction.frozen", "prediction.frozen", *RUN[1:]))
    assert report.intact
    assert [frozen["run"] for frozen in report.frozen] == [False, True]
    assert report.note == f"Frozen, never run: the prediction of event 2. {CHAIN_NOTE}"


def test_an_empty_file(tmp_path: Path) -> None:
    report = check(tmp_path, [])
    assert_bad(report, None, "is empty")
    assert (report.events, report.head) == (0, None)


def test_the_head_of_a_damaged_record_is_that_of_its_last_good_line(tmp_path: Path) -> None:
    raw = chained(good_events())
    assert check(tmp_path, raw[:5], tail=b"x").head == lines.hash_line(raw[4])


@pytest.mark.parametrize("place", ["nothing", "nothing/events.jsonl", ""])
def test_no_record(tmp_path: Path, place: str) -> None:
    with pytest.raises(RecordMissingError) as caught:
        check_record(tmp_path / place)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(StorageError, match="cannot be read"):
        check_record(tmp_path)


def test_a_name_too_long_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        check_record(tmp_path / ("x" * 5000))


def test_a_huge_line_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = chained(good_events())
    limit = max(len(line) for line in raw)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", limit)
    assert check(tmp_path, raw).intact, "a line of exactly the limit is fine"
    path = tmp_path / "events.jsonl"
    with path.open("r+b") as file:
        # A file with a hole: a terabyte of zeros, were it read.
        file.truncate(2**40)
    assert_bad(check_record(path), 10, f"more than {limit:,} bytes")


def test_a_line_of_some_megabytes(tmp_path: Path) -> None:
    events = good_events()
    events[1] = ("evidence.observed", {"values": [0.5] * 500_000})
    assert check(tmp_path, chained(events)).intact


def test_checking_needs_only_the_standard_library(tmp_path: Path) -> None:
    check(tmp_path, chained(good_events()))
    program = (
        "import sys, pathlib\n"
        "from weaklink.agent.record.check import check_record\n"
        "assert check_record(pathlib.Path(sys.argv[1])).intact\n"
        "print(sorted({'torch', 'openai', 'pydantic', 'pydantic_core', 'jinja2', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
