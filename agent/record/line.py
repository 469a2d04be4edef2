"""One line of a record: `{"v":1,"seq":N,"kind":KIND,"prev":HEX,"body":{...}}` in canonical form. Standard library only.

The hash of a line is the SHA-256 of its stored bytes, without the line end. `prev` is the hash of the line before; the
first line has 64 zeros there.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weaklink.agent.record.canonical import canonical_bytes

FILE_NAME = "events.jsonl"
VERSION = 1
GENESIS = "0" * 64

# Bounds the memory of a reader that is handed anything at all. An evidence of 100,000 parameters has some 60 MiB.
MAX_LINE_BYTES = 256 * 2**20

# The keys of `bodies.BODIES`, once more: that module needs pydantic, and a test holds the two together.
KINDS = (
    "incident.opened",
    "evidence.observed",
    "baseline.kept",
    "advisor.asked",
    "advisor.exchanged",
    "advisor.looked",
    "advisor.answered",
    "playbook.answered",
    "advisor.failed",
    "prediction.frozen",
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
)

_KEYS = {"v", "seq", "kind", "prev", "body"}


class BadLineError(Exception):
    """A line is not what weaklink writes. `problem` is one sentence; `line` counts from 1, None if none is at fault."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


@dataclass(frozen=True)
class Event:
    """A line taken apart. `hash` is the SHA-256 of its stored bytes."""

    seq: int
    kind: str
    prev: str
    body: dict[str, Any]
    hash: str


def record_file(path: Path) -> Path:
    """The events file: of an incident's folder, or the path itself."""
    # Not Path.is_dir, which lets some OSErrors out (no permission, a name too long): the open that follows words them.
    return path / FILE_NAME if os.path.isdir(path) else path


def hash_line(raw: bytes) -> str:
    """SHA-256 of a line's bytes without the line end, as 64 hex digits."""
    return hashlib.sha256(raw).hexdigest()


def encode(seq: int, kind: str, prev: str, body: dict[str, Any]) -> bytes:
    """The bytes of a line, without the line end.

    Raises:
        ValueError: The body has no canonical form, or the line is larger than `MAX_LINE_BYTES`.
    """
    raw = canonical_bytes({"v": VERSION, "seq": seq, "kind": kind, "prev": prev, "body": body})
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"the line would have {len(raw):,} bytes; a record takes {MAX_LINE_BYTES:,}")
    return raw


def decode(raw: bytes) -> Event:
    """Take a line apart and check all that can be checked without its neighbours.

    Raises:
        BadLineError: With what is wrong, and no line number.
    """
    # The stored bytes are hashed as they are, before anything is parsed.
    digest = hash_line(raw)
    fields = _fields(_parse(raw))
    if not _is_canonical(raw, fields):
        raise BadLineError(_why_not_canonical(raw))
    return Event(fields["seq"], fields["kind"], fields["prev"], fields["body"], digest)


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadLineError("The line is not UTF-8 text.") from None
    except RecursionError:
        raise BadLineError("The line is nested too deeply.") from None
    except ValueError:
        # Also an integer with more digits than Python takes.
        raise BadLineError("The line is not JSON.") from None


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadLineError("The line is no JSON object.")
    if value.keys() != _KEYS:
        raise BadLineError("The line does not have exactly the keys v, seq, kind, prev and body.")
    if type(value["v"]) is not int or value["v"] != VERSION:
        raise BadLineError(f"The line is not of record version {VERSION}, the only one this weaklink reads.")
    if not isinstance(value["kind"], str) or value["kind"] not in KINDS:
        raise BadLineError(f"The kind {str(value['kind'])[:60]!a} is unknown.")
    if type(value["seq"]) is not int or not isinstance(value["prev"], str):
        raise BadLineError("The line's seq is no integer, or its prev is no text.")
    if not isinstance(value["body"], dict):
        raise BadLineError("The line's body is no JSON object.")
    return value


def _is_canonical(raw: bytes, fields: dict[str, Any]) -> bool:
    try:
        return canonical_bytes(fields) == raw
    except ValueError:
        return False


def _why_not_canonical(raw: bytes) -> str:
    if raw.endswith(b"\r"):
        return "The line ends in a carriage return: the file was converted to Windows line ends (by git, or an editor)."
    return "The line is not in canonical form: it was not written by weaklink, or was edited."
