"""A copy of the working folder for every run: small files copied, large ones linked, noise left out.

Every run of one incident gets the same path and the same content, so that no run can read what another one wrote.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from weaklink.collector.errors import StorageError
from weaklink.collector.guard import undo
from weaklink.collector.job import GuardSettings

COPY_FILE_BYTES = 32 * 1024 * 1024
COPY_TOTAL_BYTES = 512 * 1024 * 1024
# Names the process a scratch folder belongs to.
OWNER = "owner"
# A folder with more entries than this, or any after so many in all, is linked whole; writes into it are journaled.
FOLDER_ENTRIES = 2000
TOTAL_ENTRIES = 20_000
_NOISE = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"})
# At the top only: further down, `data/incidents` is somebody's data.
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "incidents"})
_LINKED = frozenset({".venv", "venv", "node_modules", ".tox", "site-packages"})


@dataclass(frozen=True)
class FileState:
    """Enough to see that a file was written: size and modification time in nanoseconds."""

    size: int
    modified: int


def sweep(temporary: Path) -> None:
    """Clear scratch folders whose command line was killed: undo what their runs wrote elsewhere, then remove them."""
    for folder in temporary.glob("weaklink-*"):
        try:
            owner = int((folder / OWNER).read_text(encoding="ascii"))
            os.kill(owner, 0)
        except ProcessLookupError:
            with contextlib.suppress(OSError, ValueError, StorageError):
                undo(folder / "journal.jsonl")
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # somebody else's, or no scratch folder of ours


def state_of(path: str) -> FileState:
    """The file's state; -1 for both where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return FileState(-1, -1)
    return FileState(found.st_size, found.st_mtime_ns)


class Scratch:
    """The scratch folder of one incident. `lay` makes `folder` anew from the original."""

    def __init__(self, original: Path, leave_out: Path | None = None) -> None:
        """Args:
        original: The working folder the user started weaklink in.
        leave_out: A folder that is not part of it, such as the one of all incidents.
        """
        self.original = original.resolve()
        self._leave_out = None if leave_out is None else leave_out.resolve()
        try:
            self.base = Path(tempfile.mkdtemp(prefix="weaklink-")).resolve()
        except OSError as error:
            raise StorageError(
                f"No scratch folder can be made: {error.strerror}.",
                about=tempfile.gettempdir(),
                hint="free some space, or set TMPDIR to a folder that can be written.",
            ) from error
        (self.base / OWNER).write_text(str(os.getpid()), encoding="ascii")
        sweep(self.base.parent)
        self.folder = self.base / "run" / (self.original.name or "root")
        self.temporary = self.base / "tmp"
        self.journal = self.base / "journal.jsonl"
        self.keep = self.base / "keep"
        self._before: dict[str, FileState] = {}
        self._linked: dict[str, FileState] = {}

    @property
    def guard(self) -> GuardSettings:
        return GuardSettings(scratch=self.base, journal=self.journal, keep=self.keep)

    def lay(self) -> None:
        """Make the run's folder anew, as the original is now.

        Raises:
            StorageError: The copy does not fit.
        """
        for folder in (self.folder.parent, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        self._linked = {}
        self._budget, self._entries = COPY_TOTAL_BYTES, TOTAL_ENTRIES
        try:
            self._copy(self.original, self.folder)
        except OSError as error:
            raise StorageError(
                f"The working folder cannot be copied: {error.strerror}.",
                about=str(error.filename or self.original),
                hint="free some space in the temporary folder, or set TMPDIR to another disk.",
            ) from error
        self._before = self._listing()

    def _copy(self, source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        with os.scandir(source) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name in _NOISE or Path(entry.path) in (self.base, self._leave_out):
                continue
            if source == self.original and entry.name in _LEFT_OUT:
                continue
            self._entries -= 1
            here = target / entry.name
            if entry.is_symlink() or entry.name in _LINKED:
                os.symlink(os.path.realpath(entry.path), here)
            elif entry.is_dir():
                self._copy_folder(entry, here)
            elif entry.is_file():
                self._copy_file(entry, here)

    def _copy_folder(self, entry: os.DirEntry[str], target: Path) -> None:
        try:
            with os.scandir(entry.path) as listing:
                many = sum(1 for _ in listing) > min(FOLDER_ENTRIES, self._entries)
        except PermissionError:
            many = True  # the script may not need it either
        if many:
            os.symlink(entry.path, target)
        else:
            self._copy(Path(entry.path), target)

    def _copy_file(self, entry: os.DirEntry[str], target: Path) -> None:
        size = entry.stat().st_size
        if size > COPY_FILE_BYTES or size > self._budget or not os.access(entry.path, os.R_OK):
            os.symlink(entry.path, target)
            self._linked[entry.path] = state_of(entry.path)
            return
        self._budget -= size
        shutil.copy2(entry.path, target)

    def _listing(self) -> dict[str, FileState]:
        found: dict[str, FileState] = {}
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                found[os.path.relpath(path, self.folder)] = state_of(path)
        return found

    def settle(self) -> list[str]:
        """After a run: undo what it wrote outside, and list what it wrote, inside (relative) and outside (absolute).

        Raises:
            StorageError: A file could not be restored, or a native library wrote through a link into an original.
        """
        now = self._listing() if self.folder.exists() else {}
        inside = sorted(path for path, state in now.items() if self._before.get(path) != state)
        outside = undo(self.journal)
        harmed = [path for path, state in self._linked.items() if state_of(path) != state]
        if harmed:
            raise StorageError(
                "A run wrote through a link into a file of yours, by a library that Python does not see.",
                about=", ".join(harmed[:5]),
                hint="restore it; keep files that the script writes apart from its large inputs, or run it elsewhere.",
            )
        return [path for path in inside if "__pycache__" not in path] + outside

    def close(self) -> None:
        """Remove the folder for good."""
        undo(self.journal)
        shutil.rmtree(self.base, ignore_errors=True)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
