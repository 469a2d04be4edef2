"""What can be wrong with a record, and what a disk error means. No pydantic here: `weaklink check` starts at once."""

from __future__ import annotations

import errno
from pathlib import Path

from weaklink.collector.errors import StorageError, WeaklinkError

_HINTS = {
    errno.ENOSPC: "free some space on that disk, or name a folder on another one with `--incidents DIR`.",
    errno.EDQUOT: "your disk quota is used up: free some space, or name another folder with `--incidents DIR`.",
    errno.EFBIG: "a file-size limit is set for this process: raise it (`ulimit -f unlimited`).",
    errno.EIO: "the disk reports a fault: name a folder on another one with `--incidents DIR`.",
}
_OTHER_FOLDER = "name a folder you can write to with `--incidents DIR`."


class RecordError(WeaklinkError):
    """An incident record cannot be written or read as asked."""


class RecordDamagedError(RecordError):
    """A line of the record is not what was written; everything before it is good."""

    exit_code = 1


class RecordMissingError(RecordError):
    """There is no record at that path."""

    exit_code = 2


def storage_error(what: str, error: OSError, path: Path) -> StorageError:
    """The error for a failed write: `what` names what could not be done, the hint follows from the errno."""
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, _OTHER_FOLDER)
    return StorageError(f"{what}: {reason}.", about=str(path), hint=hint)
