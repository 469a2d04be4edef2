"""Where a name leads: inside the project, or to exactly a file that the run opened. Everything else is refused.

A name is untrusted. It is followed to where it really lies (links included) and held against the root before anything
is opened; the file is then opened from the root down, each step refusing links, so that a link that is swapped in
between leads nowhere. Only regular files are opened: no device, no pipe, no socket.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from weaklink.agent.reading.never_read import HOLDS_SECRETS, NOISE, holds_secrets

LONGEST_NAME = 1000  # characters
_LARGEST_FOLDER = 20_000  # entries that are read of one folder

_SYSTEM = tuple(Path(name) for name in ("/proc", "/sys", "/dev", "/run"))

_NO_PART = "not read: no part of the project (version control, installed packages, caches)"


class Refusal(Exception):
    """A request that is not answered, with the reason as one sentence for whoever asked."""


@dataclass(frozen=True)
class Place:
    """A name that may be looked at.

    Attributes:
        name: As it is shown and cited: relative to the root with forward slashes, or as the run named it.
        real: Where it lies, without any link.
        base: A folder at or above `real` from which it is opened without following links.
    """

    name: str
    real: Path
    base: Path


@dataclass(frozen=True)
class Found:
    """An entry of a folder. `kind` is `file`, `folder`, `link` (to a file inside) or why it is not shown."""

    place: Place
    kind: str
    size: int


class Grounds:
    """The root and the files that the run opened.

    Args:
        root: The project's folder.
        opened: Names of files that the run opened, relative to `folder` or absolute.
        folder: What relative names of `opened` start from.
        leave_out: Folders of which nothing is read.
    """

    def __init__(self, root: Path, opened: Sequence[str], folder: Path, leave_out: Sequence[Path]) -> None:
        self.root = Path(os.path.realpath(root))
        self._left_out = [str(self.root / "incidents"), *(os.path.realpath(path) for path in leave_out)]
        self._below = str(self.root).rstrip(os.sep) + os.sep
        self._opened: dict[str, Path] = {}
        self._name_of: dict[Path, str] = {}
        for name in opened:
            real = _real(folder / name) if _is_name(name) else None
            if real is not None and not _is_system(real):
                self._opened.setdefault(name, real)
                self._name_of.setdefault(real, name)

    def elsewhere(self) -> list[Place]:
        """Files outside the root that the run opened and that may be read."""
        places = []
        for name, real in self._opened.items():
            if not self._inside(real) and not holds_secrets(real.parts[1:]):
                places.append(Place(name, real, real.parent))
        return places

    def find(self, name: str) -> Place:
        """Where a name leads.

        Raises:
            Refusal: It is no name, leads outside, or is one of those that are never read.
        """
        if not _is_name(name):
            raise Refusal(f"that is no name of a file: empty, longer than {LONGEST_NAME} characters, or not printable")
        if name in self._opened:
            return self._checked(name, _real(self._opened[name]) or self._opened[name], was_opened=True)
        parts = Path(name).parts
        if ".." in parts:
            raise Refusal("names go down from the root: no '..'")
        path = self.root / name
        if Path(name).is_absolute() and not path.is_relative_to(self.root):
            raise Refusal("lies outside of the project's folder, and is no file that the run opened")
        # Before the disk is asked: whether a key file exists is nobody's business.
        self._refuse_by_name(path.relative_to(self.root).parts)
        real = _real(path)
        if real is None:
            raise Refusal("there is no such file or folder")
        return self._checked(str(path.relative_to(self.root).as_posix()), real, was_opened=False)

    def entries(self, folder: Place) -> Iterator[Found]:
        """The entries of a folder, sorted by name; those that are never shown are left out, links out of it marked.

        Raises:
            Refusal: It cannot be read.
        """
        try:
            with os.scandir(folder.real) as found:
                entries = sorted((entry for _, entry in zip(range(_LARGEST_FOLDER), found, strict=False)), key=_by_name)
        except OSError as error:
            raise Refusal(f"the folder cannot be read: {error.strerror}") from error
        for entry in entries:
            name = entry.name if folder.name == "." else f"{folder.name}/{entry.name}"
            kind, real, size = _kind(entry)
            if kind == "link":
                target = _real(real)
                if target is None or not self._inside(target):
                    yield Found(Place(name, real, folder.real), "a link that leads outside", 0)
                    continue
                kind, size = ("file", target.stat().st_size) if target.is_file() else ("a link to a folder", 0)
                real = target
            if not self._inside(real) or self._is_left_out(real):
                continue
            named = self._name_of.get(real, name)
            if self._hides(real, kind == "folder"):
                continue
            if holds_secrets(real.relative_to(self.root).parts) or holds_secrets((entry.name,)):
                kind = HOLDS_SECRETS
            yield Found(Place(named if kind == "file" else name, real, self.root), kind, size)

    def _hides(self, real: Path, is_folder: bool) -> bool:
        return real.name.casefold() in NOISE or (is_folder and (real / "pyvenv.cfg").exists())

    def _checked(self, name: str, real: Path, was_opened: bool) -> Place:
        inside = self._inside(real)
        if (_is_system(real) and not _is_system(self.root)) or not (inside or was_opened):
            raise Refusal("leads outside of the project's folder, and is no file that the run opened")
        if was_opened and not inside:
            if holds_secrets(real.parts[1:]):
                raise Refusal(HOLDS_SECRETS)
            return Place(name, real, real.parent)
        self._refuse_by_name(real.relative_to(self.root).parts)
        if self._is_left_out(real):
            raise Refusal("not read: records of weaklink")
        above = [folder for folder in real.parents if folder != self.root and self._inside(folder)]
        if any((folder / "pyvenv.cfg").exists() for folder in above):
            raise Refusal(_NO_PART)
        return Place(self._name_of.get(real, name), real, self.root)

    def _refuse_by_name(self, parts: Sequence[str]) -> None:
        if holds_secrets(parts):
            raise Refusal(HOLDS_SECRETS)
        if any(part.casefold() in NOISE for part in parts):
            raise Refusal(_NO_PART)

    def _is_left_out(self, real: Path) -> bool:
        return any(str(real) == folder or str(real).startswith(folder + os.sep) for folder in self._left_out)

    def _inside(self, real: Path) -> bool:
        return real == self.root or str(real).startswith(self._below)


def open_file(place: Place) -> BinaryIO:
    """The file, open for reading; never waits for one that is no regular file.

    Raises:
        Refusal: It is none, is gone, or must not be read.
    """
    folder = -1
    try:
        folder = os.open(place.base, os.O_RDONLY | os.O_DIRECTORY)
        *above, last = place.real.relative_to(place.base).parts or (".",)
        for part in above:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        if not stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            raise Refusal("is no regular file")
        found = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            raise Refusal("is no regular file")
        return os.fdopen(found, "rb")
    except OSError as error:
        raise Refusal(f"cannot be read: {error.strerror}") from error
    finally:
        if folder >= 0:
            os.close(folder)


def _is_name(name: str) -> bool:
    if not name.strip() or len(name) > LONGEST_NAME or "\0" in name:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _real(path: Path) -> Path | None:
    """Where a path leads; None where it leads nowhere: missing, a loop of links, a part too long."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except (OSError, ValueError):
        return None


def _is_system(real: Path) -> bool:
    return any(real.is_relative_to(folder) for folder in _SYSTEM)


def _kind(entry: os.DirEntry[str]) -> tuple[str, Path, int]:
    try:
        if entry.is_symlink():
            return "link", Path(entry.path), 0
        if entry.is_dir(follow_symlinks=False):
            return "folder", Path(entry.path), 0
        if entry.is_file(follow_symlinks=False):
            return "file", Path(entry.path), entry.stat(follow_symlinks=False).st_size
    except OSError:
        return "unreadable", Path(entry.path), 0
    return "no regular file", Path(entry.path), 0


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name
