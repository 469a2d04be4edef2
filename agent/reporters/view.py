"""What a reporter needs to know of an incident, so that reporters and the record can change apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import (
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
from weaklink.collector.evidence import Evidence


class IncidentView(Protocol):
    """An incident as read from its record. Everything after `opened` may be missing: a diagnosis can be interrupted."""

    @property
    def folder(self) -> Path:
        """The incident's own folder."""

    @property
    def opened(self) -> Opened:
        """What was asked for."""

    @property
    def observed(self) -> Observed | None:
        """The observed run, with the digest of its evidence."""

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of the observed run."""

    @property
    def asked(self) -> Sequence[Asked]:
        """Every brief an advisor was shown."""

    @property
    def answered(self) -> Sequence[Answered]:
        """Every answer, with the contract's violations."""

    @property
    def proposal(self) -> Proposal | None:
        """The accepted proposal."""

    @property
    def frozen(self) -> Frozen | None:
        """Claim and context, as frozen before the first rerun."""

    @property
    def reruns(self) -> Sequence[RerunFinished]:
        """Every rerun that ended, in order."""

    @property
    def verdict(self) -> VerdictReached | None:
        """What the reruns decided."""

    @property
    def amendments(self) -> Sequence[Amended]:
        """Labelled corrections."""

    @property
    def closed(self) -> Closed | None:
        """How the diagnosis ended."""

    @property
    def head(self) -> str:
        """The digest of the record's last line."""
