"""What the observed run started from, kept in the incident: a recovery needs it when the originals have been mended.

Sources, and whatever small files the working folder held. What is large stays where it is, with its SHA-256 where the
run was seen to read it; a recovery says so where it is no longer the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from weaklink.agent.inputs import files_read
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.recoveries import BaselineKept, KeptFile
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import Evidence
from weaklink.collector.scratch import Scratch

FOLDER = "baseline"
FILE_BYTES = 32 * 2**20
TOTAL_BYTES = 128 * 2**20
# A file that no run was seen to read may still be needed by another seed; only small ones are worth their place.
UNREAD_BYTES = 2**20
HASHED_BYTES = 2**30
_CHUNK = 2**20


def keep_baseline(incident: Path, folder: Path, evidence: Evidence, writer: RecordWriter) -> None:
    """Copy what the run started from into the incident's folder, and record which files and what they held.

    A disk that is full keeps no baseline; the diagnosis goes on, and a recovery says why it cannot.
    """
    target = incident / FOLDER
    try:
        with Scratch(folder, leave_out=incident.parent) as scratch:
            scratch.lay()
            kept = BaselineKept(files=list(_copied(scratch.folder, target, evidence)) + list(_elsewhere(evidence)))
    except (OSError, StorageError) as error:
        shutil.rmtree(target, ignore_errors=True)
        reason = error.message if isinstance(error, StorageError) else error.strerror
        kept = BaselineKept(problem=f"nothing was kept: {reason}")
    writer.append("baseline.kept", kept)


def lay_baseline(incident: Path, kept: BaselineKept, original: Path, target: Path) -> list[str]:
    """Make the baseline's folder anew at `target`; answers the files that are missing or not what they were.

    Args:
        incident: The incident's folder.
        kept: What was recorded of it.
        original: The working folder, for what was not kept.
        target: A folder that does not exist yet.

    Raises:
        OSError: It cannot be written.
    """
    copy = incident / FOLDER
    target.mkdir(parents=True)
    for place, folders, _ in os.walk(copy):
        for name in folders:  # an empty folder may be where the script writes
            (target / Path(place, name).relative_to(copy)).mkdir(parents=True, exist_ok=True)
    return [file.path for file in kept.files if not _laid(file, copy, original, target)]


def _copied(folder: Path, target: Path, evidence: Evidence) -> Iterator[KeptFile]:
    """Every file of a laid folder: what the run read first, the rest by size, as far as there is room."""
    target.mkdir()
    read = set(files_read(evidence))
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        paths = [Path(place, name) for name in folders]
        for path in paths:
            if not path.is_symlink():
                (target / path.relative_to(folder)).mkdir()
        found += [Path(place, name) for name in files] + [path for path in paths if path.is_symlink()]
    room = TOTAL_BYTES
    for path in sorted(found, key=lambda path: (_name(path, folder) not in read, _size(path), path)):
        name, size = _name(path, folder), _size(path)
        limit = FILE_BYTES if name in read else UNREAD_BYTES
        if path.is_symlink() or not 0 <= size <= min(limit, room):
            yield KeptFile(path=name, size=size, sha256=_sha256(path) if name in read else None)
            continue
        room -= size
        shutil.copy2(path, target / name)
        yield KeptFile(path=name, size=size, sha256=_sha256(target / name), kept=True)


def _elsewhere(evidence: Evidence) -> Iterator[KeptFile]:
    for name in files_read(evidence):
        if os.path.isabs(name) and os.path.isfile(name):
            yield KeptFile(path=name, size=_size(Path(name)), sha256=_sha256(Path(name)))


def _laid(file: KeptFile, copy: Path, original: Path, target: Path) -> bool:
    """Put one file in its place; answers whether it is what it was."""
    if os.path.isabs(file.path):
        return _same(Path(file.path), file)
    if not _inside(target, file.path):
        return False
    place = target / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.kept:
        if not (copy / file.path).is_file():
            return False
        shutil.copy2(copy / file.path, place)
        return _same(place, file)
    source = original / file.path
    if source.exists():
        place.symlink_to(source.resolve())
    return _same(source, file)


def _inside(folder: Path, name: str) -> bool:
    """A path of a record that was written by somebody else must not lead out of the folder."""
    return (folder / name).resolve().is_relative_to(folder.resolve())


def _same(path: Path, file: KeptFile) -> bool:
    if _size(path) != file.size:
        return False
    return file.sha256 is None or _sha256(path) == file.sha256


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _size(path: Path) -> int:
    """Bytes of a file; -1 for anything else, also for a link that leads nowhere."""
    return path.stat().st_size if path.is_file() else -1


def _sha256(path: Path) -> str | None:
    """None where it cannot be read, or is too large to be."""
    if not 0 <= _size(path) <= HASHED_BYTES:
        return None
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                found.update(part)
    except OSError:
        return None
    return found.hexdigest()
