"""Checking a record as a stranger would: from the bytes on disk, with the standard library alone.

`weaklink check` must work on a machine that has neither torch nor openai, and start at once: no pydantic here either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from weaklink.agent.record import line as lines
from weaklink.agent.record.canonical import digest
from weaklink.agent.record.errors import RecordMissingError
from weaklink.agent.record.line import BadLineError, Event, record_file
from weaklink.collector.errors import StorageError, UsageError

CHAIN_NOTE = (
    "The chain shows edits relative to a head that somebody kept elsewhere (`weaklink check --head HEX`). "
    "It is not tamper-proof: whoever can write the file can write a whole new chain."
)

# What may follow incident.closed: a run of the experiment later (`weaklink verify`), corrections, a recovery, and what
# the operator adds. `incident.continued` opens the record again: after it a round may hold whatever the first one may.
_AFTER_CLOSED = {
    "rerun.started",
    "rerun.finished",
    "verdict.reached",
    "incident.amended",
    "operator.fact",
    "incident.continued",
    "recovery.started",
    "recovery.finished",
    "reference.sealed",
    "reference.compared",
    "incident.closed",
}


class FrozenDigests(TypedDict):
    """A frozen prediction: digests of claim and context, the event's seq, and whether a rerun started after it."""

    claim: str
    context: str
    seq: int
    run: bool


@dataclass
class CheckReport:
    """What a check found.

    Attributes:
        intact: Every line is good, and the head is the expected one, if one was given.
        path: The events file.
        events: Number of good events before the first bad line.
        head: Hash of the last good line; None where there is none.
        bad_line: The first bad line, from 1; None where none is at fault.
        problem: What is wrong, one sentence; None if nothing is.
        frozen: The frozen predictions among the good events. Digests were recomputed from what is kept.
        note: What the check can and cannot show, and which predictions were never run.
        expected_head_line: The line whose hash is the expected head, from 1; None if no line has it or none was given.
        sealed: The seqs of the references that were sealed before an outcome was held against them.
    """

    intact: bool
    path: Path
    events: int = 0
    head: str | None = None
    bad_line: int | None = None
    problem: str | None = None
    frozen: list[FrozenDigests] = field(default_factory=list)
    note: str = CHAIN_NOTE
    expected_head_line: int | None = None
    sealed: list[int] = field(default_factory=list)


@dataclass
class Rules:
    """Which event may follow which. The writer obeys the same rules, so it never writes what a check refuses."""

    opened: bool = False
    observed: bool = False
    frozen: bool = False
    closed: bool = False
    sealed: bool = False

    def admit(self, kind: str, body: dict[str, Any]) -> None:
        """Take one event in, in order. Raises BadLineError, without a line number, if it may not stand here."""
        self._order(kind, body)
        if kind == "prediction.frozen":
            _digests_hold(body, ("claim", "context"))
        elif kind == "reference.sealed":
            _digests_hold(body, ("outcome",))
        self.opened = True
        self.observed = self.observed or kind == "evidence.observed"
        self.frozen = self.frozen or kind == "prediction.frozen"
        self.closed = self.closed or kind == "incident.closed"
        self.sealed = self.sealed or kind == "reference.sealed"
        if kind == "incident.continued":
            # What was frozen in an earlier round is no prediction of what is measured in this one.
            self.frozen = self.closed = False

    def _order(self, kind: str, body: dict[str, Any]) -> None:
        if (kind == "incident.opened") == self.opened:
            raise BadLineError("A record starts with incident.opened, and has it only once.")
        if self.closed and kind not in _AFTER_CLOSED:
            raise BadLineError(f"{kind} may not follow incident.closed.")
        if kind == "prediction.frozen" and not self.observed:
            raise BadLineError("prediction.frozen stands before any evidence.observed.")
        if kind == "reference.compared" and not self.sealed:
            raise BadLineError(
                "reference.compared stands before any reference.sealed: the reference was not there first."
            )
        # A close-up belongs to the observation: nothing is predicted of it.
        of_a_prediction = kind in ("rerun.started", "rerun.finished") and body.get("role") != "close_up"
        if of_a_prediction and not self.frozen:
            raise BadLineError(f"{kind} stands before any prediction.frozen: the prediction was not there first.")


def _digests_hold(body: dict[str, Any], parts: tuple[str, ...]) -> None:
    for part in parts:
        kept = body.get(part)
        if not isinstance(kept, dict) or body.get(f"{part}_sha256") != digest(kept):
            raise BadLineError(f"{part}_sha256 is not the digest of the {part} that is kept beside it.")


def read_events(path: Path) -> Iterator[Event]:
    """The events of a record one after the other, each checked against the line before; one line in memory at a time.

    Args:
        path: The events file, or the incident's folder.

    Raises:
        BadLineError: At the first bad line. What was yielded before is good.
        RecordMissingError: There is no file.
        StorageError: The file cannot be read.
    """
    path = record_file(path)
    rules = Rules()
    seq, head = 0, lines.GENESIS
    for number, raw in _raw_lines(path):
        try:
            event = lines.decode(raw)
            _follows(event, seq, head)
            rules.admit(event.kind, event.body)
        except BadLineError as bad:
            bad.line = number
            raise
        yield event
        seq, head = seq + 1, event.hash
    if seq == 0:
        raise BadLineError("The file is empty: a record has at least its incident.opened.")


def _follows(event: Event, seq: int, head: str) -> None:
    if event.seq != seq:
        raise BadLineError(f"The line's seq is {event.seq} and should be {seq}: a line is missing, doubled or moved.")
    if event.prev != head:
        before = f"the hash of line {seq}: that line was edited after this one was written" if seq else "64 zeros"
        raise BadLineError(f"The line's prev is not {before}.")


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and stored bytes without the line end."""
    try:
        with path.open("rb") as file:
            yield from _split(file)
    except FileNotFoundError:
        raise RecordMissingError(
            "There is no incident record here.", about=str(path), hint="name the incident's folder or its events.jsonl."
        ) from None
    except OSError as error:
        raise StorageError(
            f"The record cannot be read: {error.strerror or error}.",
            about=str(path),
            hint="check the path and its permissions.",
        ) from error


def _split(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := file.readline(lines.MAX_LINE_BYTES + 2):
        number += 1
        if raw.endswith(b"\n"):
            yield number, raw[:-1]
        elif len(raw) > lines.MAX_LINE_BYTES:
            raise BadLineError(
                f"The line has more than {lines.MAX_LINE_BYTES:,} bytes; weaklink writes none such.", number
            )
        else:
            raise BadLineError("The line has no line end: it was cut short, by a crash or a full disk.", number)


def check_record(path: Path, expected_head: str | None = None) -> CheckReport:
    """Check a record, line by line, up to its first bad line.

    Args:
        path: The events file, or the incident's folder.
        expected_head: The hash of the last line as somebody kept it, 64 hex digits.

    Raises:
        RecordMissingError: There is no file.
        StorageError: The file cannot be read.
        UsageError: The expected head is no SHA-256.
    """
    expected = _head(expected_head)
    report = CheckReport(intact=True, path=record_file(path))
    try:
        for event in read_events(path):
            _take_in(report, event, expected)
    except BadLineError as bad:
        report.intact, report.bad_line, report.problem = False, bad.line, bad.problem
    _compare_head(report, expected)
    report.note = _note(report)
    return report


def _head(text: str | None) -> str | None:
    if text is None:
        return None
    head = text.strip().lower()
    if len(head) != 64 or set(head) - set("0123456789abcdef"):
        raise UsageError(
            "A head is a SHA-256: 64 hex digits.", about=text[:80], hint="copy it whole, as it was printed."
        )
    return head


def _take_in(report: CheckReport, event: Event, expected: str | None) -> None:
    report.events += 1
    report.head = event.hash
    if event.hash == expected:
        report.expected_head_line = report.events
    if event.kind == "prediction.frozen":
        claim, context = event.body["claim_sha256"], event.body["context_sha256"]
        report.frozen.append(FrozenDigests(claim=claim, context=context, seq=event.seq, run=False))
    elif event.kind == "reference.sealed":
        report.sealed.append(event.seq)
    elif event.kind == "rerun.started" and event.body.get("role") != "close_up":
        report.frozen[-1]["run"] = True


def _compare_head(report: CheckReport, expected: str | None) -> None:
    # A bad line is the nearer finding: it stays the one that is reported.
    if expected is None or not report.intact or report.expected_head_line is not None:
        return
    report.intact = False
    report.problem = (
        f"The record ends in head {report.head}, and no line of it has the head you kept: it was rewritten or cut."
    )


def _note(report: CheckReport) -> str:
    never = [str(frozen["seq"]) for frozen in report.frozen if not frozen["run"]]
    run = f"Frozen, never run: the prediction of event {', '.join(never)}. " if never else ""
    return run + _seals(report) + _went_on(report) + CHAIN_NOTE


def _seals(report: CheckReport) -> str:
    if not report.sealed:
        return ""
    events = ", ".join(map(str, report.sealed))
    return (
        f"Sealed: the reference of event {events}. It stood there before the outcomes that were held against it; "
        "that it is right, and what it leaves open, no hash shows. "
    )


def _went_on(report: CheckReport) -> str:
    # A head kept at freezing is that of an earlier line once the reruns are recorded: nothing before it was changed.
    if report.expected_head_line is None or report.expected_head_line == report.events:
        return ""
    added = report.events - report.expected_head_line
    return (
        f"The head you kept is that of line {report.expected_head_line}: up to there nothing changed, "
        f"and {added} {'event was' if added == 1 else 'events were'} added since. "
    )
