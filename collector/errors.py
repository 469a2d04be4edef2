"""The one error tree: every refusal weaklink can give, with what it is about and what to do next.

`weaklink.agent` raises and extends these too. A command never shows a traceback for one of them: it prints the
three sentences and exits with `exit_code` (see `docs/exit-codes.md`).
"""

from __future__ import annotations


class WeaklinkError(Exception):
    """Base of all errors a user can meet.

    Args:
        message: What went wrong, one sentence.
        about: The file, row, parameter or option concerned, if there is one.
        hint: What to do next.
    """

    exit_code = 2

    def __init__(self, message: str, *, about: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.about = about
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.about:
            parts.append(f"[{self.about}]")
        if self.hint:
            parts.append(f"Next: {self.hint}")
        return " ".join(parts)


class UsageError(WeaklinkError):
    """The command line or an option cannot be used as given."""


class SubjectError(WeaklinkError):
    """The script cannot be started, or ended before anything could be measured."""


class InterpreterError(WeaklinkError):
    """The Python that should run the script lacks torch or weaklink, or does not start."""


class EvidenceError(WeaklinkError):
    """An evidence file is damaged, or of another schema."""


class StorageError(WeaklinkError):
    """The disk is full, or a folder cannot be written."""


class WorkerError(WeaklinkError):
    """A worker process died in a way that is no verdict on the user's script."""


class InterventionError(WeaklinkError):
    """An experiment cannot be applied to this run."""


class LedgerError(WeaklinkError):
    """An argument of the ledger, or the system it is given, cannot be used."""


class ProbeError(WeaklinkError):
    """An instrument is given what it cannot work on, or could not undo its work."""
