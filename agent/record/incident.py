"""An incident as the rest of weaklink sees it: a folder, and a record read back into typed bodies."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import (
    BODIES,
    Amended,
    Answered,
    Asked,
    Closed,
    Frozen,
    Observed,
    Opened,
    RerunFinished,
    VerdictReached,
)
from weaklink.agent.record.chain import damaged
from weaklink.agent.record.check import read_events
from weaklink.agent.record.errors import storage_error
from weaklink.agent.record.line import GENESIS, BadLineError, Event, record_file
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import Evidence, Model

_STEM_LENGTH = 40
_TRIES = 16


def new_incident(root: Path, stem: str, created: datetime) -> Path:
    """Make the folder of a new incident, `root/YYYYMMDD-HHMMSS-STEM-XXXX`, and return it.

    Args:
        root: The folder of all incidents; made if it is not there.
        stem: What it is about, such as the script's name; anything but ASCII letters, digits, `_` and `-` is replaced.
        created: The time in the name, in whatever zone the caller uses.

    Raises:
        StorageError: The folder cannot be made.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", stem)[:_STEM_LENGTH] or "run"
    try:
        root.mkdir(parents=True, exist_ok=True)
        return _make_folder(root, f"{created:%Y%m%d-%H%M%S}-{safe}")
    except OSError as error:
        raise storage_error("The incident's folder cannot be made", error, root) from error
    except ValueError as error:
        # A path with a null byte in it is a ValueError in Python.
        raise StorageError(
            f"The incident's folder cannot be made: {error}.", about=repr(str(root)), hint="check `--incidents DIR`."
        ) from error


def _make_folder(root: Path, name: str) -> Path:
    for tries_left in reversed(range(_TRIES)):
        # Not `random`: the user's seeds are none of our business.
        folder = root / f"{name}-{secrets.token_hex(2)}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


@dataclass
class Incident:
    """A record read back.

    Attributes:
        folder: The folder that holds the record.
        opened: What was asked for.
        observed: The last observation; `evidence` is its evidence.
        asked: What the advisor was shown, every attempt.
        answered: What it answered, every attempt.
        frozen: The last frozen prediction.
        reruns: The reruns that finished after the last frozen prediction.
        verdict: The last verdict after the last frozen prediction (or without one).
        amendments: All labelled corrections.
        closed: The last closing.
        head: Hash of the last good line.
        events: Everything in order: seq, kind, body.
        damage: With `tolerant`, what ended the reading early, one sentence; else None.
    """

    folder: Path
    opened: Opened
    observed: Observed | None = None
    asked: list[Asked] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    frozen: Frozen | None = None
    reruns: list[RerunFinished] = field(default_factory=list)
    verdict: VerdictReached | None = None
    amendments: list[Amended] = field(default_factory=list)
    closed: Closed | None = None
    head: str = GENESIS
    events: list[tuple[int, str, Model]] = field(default_factory=list)
    damage: str | None = None

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of the observed run."""
        return self.observed.evidence if self.observed else None

    @property
    def proposal(self) -> Proposal | None:
        """The last answer that broke no rule of the contract."""
        accepted = [answer.proposal for answer in self.answered if not answer.violations]
        return accepted[-1] if accepted else None

    @classmethod
    def read(cls, folder: Path, tolerant: bool = False) -> Incident:
        """Read and check a record.

        Args:
            folder: The incident's folder, or its events file.
            tolerant: Read a damaged record up to its last good line, and say so in `damage`.

        Raises:
            RecordMissingError: There is no record.
            RecordDamagedError: A line is bad; with `tolerant` only if there is nothing good before it.
            StorageError: The file cannot be read.
        """
        path = record_file(folder)
        incident: Incident | None = None
        try:
            for event in read_events(path):
                body = _typed(event)
                if isinstance(body, Opened):
                    incident = cls(folder=path.parent, opened=body)
                assert incident is not None, "read_events yields incident.opened first"
                incident._take_in(event, body)
        except BadLineError as bad:
            if incident is None or not tolerant:
                raise damaged(path, bad) from None
            incident.damage = str(damaged(path, bad))
        assert incident is not None, "read_events refuses an empty file"
        return incident

    def _take_in(self, event: Event, body: Model) -> None:
        self.head = event.hash
        self.events.append((event.seq, event.kind, body))
        if isinstance(body, Observed):
            self.observed = body
        elif isinstance(body, Asked):
            self.asked.append(body)
        elif isinstance(body, Answered):
            self.answered.append(body)
        elif isinstance(body, Frozen):
            # What was measured for an earlier prediction says nothing about this one.
            self.frozen, self.reruns, self.verdict = body, [], None
        elif isinstance(body, RerunFinished):
            if body.role != "close_up":  # which has gone into the observation
                self.reruns.append(body)
        elif isinstance(body, VerdictReached):
            self.verdict = body
        elif isinstance(body, Amended):
            self.amendments.append(body)
        elif isinstance(body, Closed):
            self.closed = body


def _typed(event: Event) -> Model:
    try:
        return BODIES[event.kind].model_validate(event.body)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(str(part) for part in first["loc"]) or "the whole body"
        problem = f"Its body is not that of {event.kind}: {field_name}: {first['msg']}."
        raise BadLineError(problem, event.seq + 1) from None
