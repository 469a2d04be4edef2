"""What a reporter needs to know of an incident, so that reporters and the record can change apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import (
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
    RerunFinished,
    VerdictReached,
)
from weaklink.collector.evidence import Evidence


class RoundView(Protocol):
    """One earlier round, as reporters read it."""

    @property
    def continued(self) -> Continued | None:
        """What it was opened with; None for the first one."""

    @property
    def answered(self) -> Sequence[Answered]:
        """Every answer in it."""

    @property
    def proposal(self) -> Proposal | None:
        """The accepted answer."""

    @property
    def beside(self) -> Proposal | None:
        """What the built-in playbook said where somebody else was asked."""

    @property
    def frozen(self) -> Frozen | None:
        """What was frozen in it."""

    @property
    def verdict(self) -> VerdictReached | None:
        """What its reruns decided."""

    @property
    def closed(self) -> Closed | None:
        """How it ended."""


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
    def exchanged(self) -> Sequence[Exchanged]:
        """Every request to a language model, with its reply."""

    @property
    def looked(self) -> Sequence[LookedAt]:
        """What a model asked to see before it answered."""

    @property
    def beside(self) -> Proposal | None:
        """What the built-in playbook says where somebody else was asked."""

    @property
    def failed(self) -> AdvisorFailed | None:
        """Why the advisor that was asked gave no answer that holds."""

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
    def facts(self) -> Sequence[OperatorFact]:
        """All that the operator said."""

    @property
    def earlier(self) -> Sequence[RoundView]:
        """The rounds before the last one, in order; all else here is the last round's."""

    @property
    def closed(self) -> Closed | None:
        """How the diagnosis ended."""

    @property
    def head(self) -> str:
        """The digest of the record's last line."""
