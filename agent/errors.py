"""Errors of the agent's side; the root of the tree is `weaklink.collector.errors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weaklink.collector.errors import SubjectError, WeaklinkError
from weaklink.collector.evidence import Evidence


class AdvisorError(WeaklinkError):
    """An advisor or its endpoint failed. The chain was delivered all the same."""

    exit_code = 3


class ContractNotMetError(AdvisorError):
    """An advisor broke the contract in every attempt.

    Args:
        advisor: Its name in the record.
        incident: The incident's folder.
        violations: Of an answer that was handed in: every rule it broke, word for word.
    """

    def __init__(self, advisor: str, incident: Path, violations: Sequence[str] = ()) -> None:
        message = f"The {advisor} advisor met the contract in none of its answers."
        hint = f"the chain and every attempt are recorded: `weaklink show {incident}`."
        if violations:
            message = "\n".join(("The answer does not meet the contract:", *(f"- {each}" for each in violations)))
            hint = "answer again, with these mended; the record is intact and keeps this attempt."
        super().__init__(message, about=str(incident), hint=hint)
        self.violations = tuple(violations)


class NothingMeasuredError(SubjectError):
    """The script ended before the learning chain could be measured. The record of how it ended is kept."""

    @classmethod
    def of(cls, evidence: Evidence, incident: Path | None) -> NothingMeasuredError:
        """The error that says how this run ended, and what to do about it."""
        outcome = evidence.outcome
        about = evidence.subject.name
        if incident is not None:
            about += f", recorded in {incident}"
        if outcome.raised is not None:
            where = outcome.raised.where
            place = f" at {where.file}:{where.line}" if where is not None else ""
            hint = "run it with `python` first; weaklink diagnoses scripts that run."
            if outcome.raised.type == "EOFError":
                hint = "the script reads standard input, which is empty here: pass the input as an argument or a file."
            message = f"The script raised {outcome.raised.type}{place} before anything could be measured: "
            return cls(message + outcome.raised.message[:300], about=about, hint=hint)
        seen = f"{outcome.forwards} forward calls of a model, no backward and no optimizer step"
        if outcome.ended == "exited":
            text = f"The script left with exit code {outcome.exit_code} before it trained anything: {seen}."
        elif outcome.ended in ("deadline", "killed", "interrupted"):
            text = f"The script was stopped ({outcome.ended}) before it trained anything: {seen}."
        else:
            text = f"The script ran to its end and trained nothing that weaklink can see: {seen}."
        return cls(text, about=about, hint="point weaklink at the script that trains; give its arguments after `--`.")


class ReceiptError(WeaklinkError):
    """The receipt of a replay is damaged, or of another schema."""
