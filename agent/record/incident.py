"""An incident as the rest of weaklink sees it: a folder, and a record read back into typed bodies."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import (
    BODIES,
    AdvisorFailed,
    Amended,
    Answered,
    Asked,
    Closed,
    Continued,
    Exchanged,
    Frozen,
    LookedAt,
    Observed,
    Opened,
    OperatorFact,
    PlaybookAnswered,
    RerunFinished,
    VerdictReached,
)
from weaklink.agent.record.chain import damaged
from weaklink.agent.record.check import read_events
from weaklink.agent.record.errors import storage_error
from weaklink.agent.record.line import GENESIS, BadLineError, Event, record_file
from weaklink.agent.record.recoveries import BaselineKept, RecoveryFinished
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import Evidence, Model, Value

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


@dataclass(frozen=True)
class Round:
    """One way from what an advisor was shown to a verdict, as an incident that went on keeps it.

    Attributes:
        continued: What this round was opened with; None for the first one.
        answered: Every answer of the advisor in it.
        beside: What the playbook said in it where somebody else was asked.
        frozen: Its last frozen prediction, whose reruns and verdict follow.
        closed: How it ended.
    """

    continued: Continued | None
    answered: tuple[Answered, ...]
    beside: Proposal | None
    frozen: Frozen | None
    reruns: tuple[RerunFinished, ...]
    verdict: VerdictReached | None
    closed: Closed | None

    @property
    def proposal(self) -> Proposal | None:
        """The last answer that broke no rule of the contract."""
        return _accepted(self.answered)

    def judged(self, proposal: Proposal) -> bool:
        """Whether this round's verdict is on that very prediction; what an answer quotes may differ."""
        own = self.proposal
        same = own is not None and own.model_copy(update={"cited": proposal.cited}) == proposal
        return same and self.verdict is not None


@dataclass
class Incident:
    """A record read back. Where it went on, all but `facts`, `earlier` and `amendments` are those of the last round.

    Attributes:
        folder: The folder that holds the record.
        opened: What was asked for.
        observed: The last observation; `evidence` is its evidence.
        asked: What the advisor was shown, every attempt.
        answered: What it answered, every attempt.
        exchanged: Every request to a language model, with its reply.
        looked: What it asked to see.
        beside: What the built-in playbook says where a model was asked.
        failed: Why the advisor that was asked gave no answer that holds.
        frozen: The last frozen prediction.
        reruns: The reruns that finished after the last frozen prediction.
        verdict: The last verdict after the last frozen prediction (or without one).
        amendments: All labelled corrections.
        facts: All that the operator said, by number.
        continued: What the last round was opened with; None in an incident that never went on.
        earlier: The rounds before the last one, in order. Nothing of them is judged again.
        baseline: What the observed run started from; None in an older record, and where nothing was run here.
        recovery: The last repair that was held against it.
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
    exchanged: list[Exchanged] = field(default_factory=list)
    looked: list[LookedAt] = field(default_factory=list)
    beside: Proposal | None = None
    failed: AdvisorFailed | None = None
    frozen: Frozen | None = None
    reruns: list[RerunFinished] = field(default_factory=list)
    verdict: VerdictReached | None = None
    amendments: list[Amended] = field(default_factory=list)
    facts: list[OperatorFact] = field(default_factory=list)
    continued: Continued | None = None
    earlier: list[Round] = field(default_factory=list)
    baseline: BaselineKept | None = None
    recovery: RecoveryFinished | None = None
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
        return _accepted(self.answered)

    @property
    def options(self) -> dict[str, Value]:
        """What was asked for in the last round."""
        return (self.continued or self.opened).options

    @property
    def declared(self) -> dict[str, Any]:
        """What is declared since the last round: an intent's `said`."""
        return (self.continued or self.opened).declared

    @property
    def rounds(self) -> list[Round]:
        """All rounds, the last one too."""
        return [*self.earlier, self._round()]

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
        incident._stand_on_earlier()
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
        elif isinstance(body, Exchanged):
            self.exchanged.append(body)
        elif isinstance(body, LookedAt):
            self.looked.append(body)
        elif isinstance(body, PlaybookAnswered):
            self.beside = body.proposal
        elif isinstance(body, AdvisorFailed):
            self.failed = body
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
        elif isinstance(body, OperatorFact):
            self.facts.append(body)
        elif isinstance(body, Continued):
            self.earlier.append(self._round())
            self.continued, self.asked, self.answered = body, [], []
            self.exchanged, self.looked, self.beside, self.failed = [], [], None, None
            self.frozen, self.reruns, self.verdict, self.closed = None, [], None, None
        elif isinstance(body, BaselineKept):
            self.baseline = body
        elif isinstance(body, RecoveryFinished):
            self.recovery = body
        elif isinstance(body, Closed):
            self.closed = body

    def _stand_on_earlier(self) -> None:
        """A prediction is tested once: where the last answer was judged in an earlier round, that verdict holds."""
        proposal = self.proposal
        if self.frozen is not None or proposal is None or proposal.outcome != "experiment":
            return
        before = next((round_ for round_ in reversed(self.earlier) if round_.judged(proposal)), None)
        if before is not None:
            self.frozen, self.reruns, self.verdict = before.frozen, list(before.reruns), before.verdict

    def _round(self) -> Round:
        return Round(
            continued=self.continued,
            answered=tuple(self.answered),
            beside=self.beside,
            frozen=self.frozen,
            reruns=tuple(self.reruns),
            verdict=self.verdict,
            closed=self.closed,
        )


def _accepted(answered: Sequence[Answered]) -> Proposal | None:
    accepted = [answer.proposal for answer in answered if not answer.violations]
    return accepted[-1] if accepted else None


def _typed(event: Event) -> Model:
    try:
        return BODIES[event.kind].model_validate(event.body)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(str(part) for part in first["loc"]) or "the whole body"
        problem = f"Its body is not that of {event.kind}: {field_name}: {first['msg']}."
        raise BadLineError(problem, event.seq + 1) from None
