"""Writing a record: each event is one line, appended whole or not at all, and never touched again."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic_core import PydanticSerializationError

from weaklink.agent.record import line as lines
from weaklink.agent.record.bodies import BODIES
from weaklink.agent.record.check import Rules, read_events
from weaklink.agent.record.errors import RecordDamagedError, RecordError, RecordMissingError, storage_error
from weaklink.agent.record.line import BadLineError, record_file
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import Model

if sys.platform != "win32":
    import fcntl

_BINARY = getattr(os, "O_BINARY", 0)
# Frozen before the first rerun means on the disk before it, whatever the caller asked for; sealed means the same.
_ALWAYS_DURABLE = {"prediction.frozen", "reference.sealed"}


@dataclass(frozen=True)
class _Tail:
    """Where the record ends. Replaced in one assignment, so that no Ctrl-C finds half of a new one."""

    rules: Rules
    count: int
    head: str
    length: int


class RecordWriter:
    """The one writer of a record. Use as a context manager, or call `close`.

    It refuses what `weaklink check` would refuse: a wrong order, or digests that are not those of what is kept.

    Args:
        path: The events file to create, or the incident's (existing) folder.

    Raises:
        StorageError: The file exists already or cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._start(record_file(path), os.O_CREAT | os.O_EXCL)
        _sync_folder(self._path.parent)

    @classmethod
    def resume(cls, path: Path) -> RecordWriter:
        """Go on with an existing, intact record.

        Args:
            path: The events file, or the incident's folder.

        Raises:
            RecordMissingError: There is no record.
            RecordDamagedError: A line is bad, such as a last line cut short; nothing is mended and nothing is added.
            StorageError: The file cannot be written, or another process is writing it.
        """
        writer = cls.__new__(cls)
        writer._start(record_file(path), 0)
        try:
            writer._catch_up()
        except BaseException:
            writer.close()
            raise
        return writer

    def _start(self, path: Path, flags: int) -> None:
        self._path = path
        self._tail = _Tail(Rules(), 0, lines.GENESIS, 0)
        self._file = _open(path, flags)
        try:
            _lock(self._file, path)
        except BaseException:
            self.close()
            raise

    def _catch_up(self) -> None:
        rules, count, head = Rules(), 0, lines.GENESIS
        try:
            for event in read_events(self._path):
                rules.admit(event.kind, event.body)
                count, head = event.seq + 1, event.hash
        except BadLineError as bad:
            raise damaged(self._path, bad) from None
        self._tail = _Tail(rules, count, head, os.fstat(self._file).st_size)

    @property
    def path(self) -> Path:
        """The events file."""
        return self._path

    @property
    def head(self) -> str:
        """Hash of the last line; 64 zeros while there is none."""
        return self._tail.head

    @property
    def count(self) -> int:
        """Number of events written, which is the seq of the next one."""
        return self._tail.count

    def append(self, kind: str, body: Model, durable: bool = False) -> str:
        """Write one event and return the hash of its line.

        Args:
            kind: One of the kinds of `bodies.BODIES`.
            body: The body of that kind.
            durable: Return only once the line is on the disk. Always so for prediction.frozen.

        Raises:
            RecordError: The body is not of that kind, has no canonical form, or may not stand here. Nothing is written.
            StorageError: The line could not be written whole. What was written before is still an intact record.
        """
        if self._file < 0:
            raise RecordError("The record is closed; nothing can be added.", about=str(self._path))
        plain = _dump(kind, body)
        tail, rules = self._tail, replace(self._tail.rules)
        try:
            raw = lines.encode(tail.count, kind, tail.head, plain)
            rules.admit(kind, plain)
        except (ValueError, BadLineError) as error:
            raise RecordError(f"This event cannot be recorded: {error}", about=kind) from error
        after = _Tail(rules, tail.count + 1, lines.hash_line(raw), tail.length + len(raw) + 1)
        self._write(raw + b"\n", durable or kind in _ALWAYS_DURABLE, after)
        return after.head

    def _write(self, data: bytes, durable: bool, after: _Tail) -> None:
        self._only_ours()
        try:
            _write_all(self._file, data)
            if durable:
                os.fsync(self._file)
            self._tail = after
        except OSError as error:
            self._take_back()
            raise storage_error("The record cannot be written", error, self._path) from error
        except BaseException:
            # Ctrl-C: the incident is closed as interrupted, and that line must not follow half of this one.
            self._take_back()
            raise

    def _only_ours(self) -> None:
        """Raise if the file is not as long as we left it: appending there would make a chain that nobody can read."""
        if os.fstat(self._file).st_size != self._tail.length:
            raise StorageError(
                "The record is not as weaklink left it: it was cut, or something else wrote to it.",
                about=str(self._path),
                hint="run `weaklink check` on it to see what is still good; nothing more is added to it.",
            )

    def _take_back(self) -> None:
        """Cut off what a failed write left behind. Where even that fails, `_only_ours` refuses every further event."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._tail.length)

    def close(self) -> None:
        """Let go of the file and its lock. The record stays as it is; a second call does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def damaged(path: Path, bad: BadLineError) -> RecordDamagedError:
    """The error for a bad line, with its number and what to do."""
    where = "" if bad.line is None else f"Line {bad.line} is bad. "
    return RecordDamagedError(
        f"This incident record is damaged. {where}{bad.problem}",
        about=str(path),
        hint="`weaklink check` says how far it is good; a record is never mended: diagnose anew, or use a copy.",
    )


def _dump(kind: str, body: Model) -> dict[str, Any]:
    expected = BODIES.get(kind)
    if expected is None:
        raise RecordError("There is no event of that kind.", about=kind)
    if not isinstance(body, expected):
        raise RecordError(f"The body of this event is a {expected.__name__}, not a {type(body).__name__}.", about=kind)
    try:
        # In this mode pydantic leaves NaN and infinity alone; the canonical form writes them as words.
        # A field that was assigned something of another type would not read back: an error, not a warning.
        return body.model_dump(mode="json", by_alias=True, warnings="error")
    except PydanticSerializationError as error:
        raise RecordError(f"This event cannot be recorded: {error}", about=kind) from error


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | _BINARY | flags, 0o644)
    except FileExistsError:
        raise StorageError(
            "There is an incident record here already; a new one would overwrite it.",
            about=str(path),
            hint="go on with it with `weaklink verify`, or name another folder with `--incidents DIR`.",
        ) from None
    except FileNotFoundError as error:
        if flags & os.O_CREAT:
            raise storage_error("The record cannot be created", error, path) from error
        raise RecordMissingError(
            "There is no incident record here.", about=str(path), hint="name the incident's folder or its events.jsonl."
        ) from None
    except OSError as error:
        raise storage_error("The record cannot be opened for writing", error, path) from error


def _lock(file: int, path: Path) -> None:
    if sys.platform == "win32":
        # No flock there: the check of the length before each write remains.
        return
    try:
        # flock, not lockf: a lockf lock is lost as soon as this process reads the same file and closes it.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            # A network file system without locks: the check of the length before each write remains.
            return
        raise StorageError(
            "Another weaklink is writing this record.",
            about=str(path),
            hint="wait until it ends, or stop it.",
        ) from None


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    """Make the file's name durable too. Not every file system can, and Windows opens no folders: then it is skipped."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
