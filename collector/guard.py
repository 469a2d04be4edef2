"""No side effects outside the scratch folder: what a rerun writes elsewhere is noted first and undone afterwards.

Two mechanisms. Links inside the scratch folder (large inputs are linked) are broken before a write.
Writes that leave the folder, by an absolute path, are journaled: the old file is copied aside, a new one is marked for
deletion; `undo` restores both once the worker is gone, however it ended. Python's audit events see `open`, `os.remove`,
`os.rename` and their like; torch's own C++ writer raises none, so `torch.save` is told apart. Not seen: files that
other native libraries (HDF5, safetensors) write; where that reaches a linked original, `Scratch.settle` finds it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weaklink.collector.errors import StorageError
from weaklink.collector.job import GuardSettings

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FREE = ("/dev/", "/proc/", "/sys/")


class Guard:
    """Watches one worker's writes. `install` cannot be undone: an audit hook lives as long as the process."""

    def __init__(self, settings: GuardSettings) -> None:
        self._scratch = os.path.realpath(settings.scratch) + os.sep
        self._journal = settings.journal
        self._keep = settings.keep
        self._free = tuple({*_FREE, self._scratch, os.path.realpath(settings.keep) + os.sep})
        self._touched: set[str] = set()
        self._created: tuple[str, ...] = ()
        self._thread = threading.local()
        self._events: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._opened,
            "os.remove": lambda args: self._entry_goes(args[0]),
            "os.rmdir": lambda args: self._folder_goes(args[0]),
            "os.truncate": lambda args: self.before_write(args[0]),
            "sqlite3.connect": lambda args: self.before_write(args[0]),
            "os.rename": self._renamed,
            "os.mkdir": lambda args: self._before_create(args[0]),
            "os.symlink": lambda args: self._before_create(args[1]),
            "os.link": self._linked,
            "shutil.rmtree": self._tree_removed,
        }

    def install(self) -> None:
        """Start watching this process and every process it forks."""
        sys.addaudithook(self._audit)

    def watch_torch_save(self) -> None:
        """Call once torch is imported: its writer opens files where no audit event is raised."""
        import torch

        torch.save = self._watched_writer(torch.save)
        torch.jit.save = self._watched_writer(torch.jit.save)

    def _watched_writer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(f, (str, os.PathLike)):
                self.before_write(f)
            original(obj, f, *args, **kwargs)

        return save

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        handler = self._events.get(event)
        if handler is None or getattr(self._thread, "busy", False):
            return
        self._thread.busy = True
        try:
            handler(args)
        except PermissionError:
            raise  # a refusal of ours
        except (TypeError, ValueError, OSError):
            pass  # nothing that names a file: a descriptor, which was opened by name before, or a database in memory
        finally:
            self._thread.busy = False

    def _opened(self, args: tuple[Any, ...]) -> None:
        path, mode, flags = args
        if isinstance(path, int) or path is None:
            return
        # Some callers pass only a mode, some only flags.
        writes = (isinstance(flags, int) and bool(flags & _WRITING)) or (
            isinstance(mode, str) and any(letter in mode for letter in "wax+")
        )
        if writes:
            truncates = isinstance(mode, str) and "w" in mode
            self.before_write(path, truncates)

    def _renamed(self, args: tuple[Any, ...]) -> None:
        self._entry_goes(args[0])
        self._entry_goes(args[1])

    def _linked(self, args: tuple[Any, ...]) -> None:
        self.before_write(args[0])  # a write to the new name is one to the old
        self._before_create(args[1])

    def _entry_goes(self, path: Any) -> None:
        """A name is about to be removed, moved away or replaced: what stands there itself, not what it links to."""
        place = _place(path)
        if self._is_free(place) or place in self._touched:
            return
        if os.path.islink(place):
            self._touched.add(place)
            self._note({"relink": place, "target": os.readlink(place)})
        elif os.path.isdir(place):
            raise PermissionError(f"weaklink reruns may not move a folder outside their scratch copy: {place}")
        else:
            self.before_write(place)

    def _folder_goes(self, path: Any) -> None:
        place = _place(path)
        if not self._is_free(place) and place not in self._touched:
            self._touched.add(place)
            self._note({"remake": place})

    def before_write(self, path: Any, truncates: bool = False) -> None:
        """Make a coming write harmless: break a link into the originals, or note the file in the journal."""
        text = os.path.abspath(os.fsdecode(path))
        inside = os.path.realpath(os.path.dirname(text)) + os.sep
        if (inside + os.path.basename(text)).startswith(self._scratch):
            if os.path.islink(text):
                self._break_link(text, truncates)
            return
        real = os.path.realpath(text)
        if self._is_free(real) or real in self._touched:
            return
        if os.path.isfile(real):
            self._keep.mkdir(parents=True, exist_ok=True)
            copy = self._keep / f"{os.getpid()}-{len(self._touched)}"  # forked children note in the same journal
            _copy_aside(real, copy)
            self._touched.add(real)
            self._note({"restore": real, "copy": str(copy)})
        elif not os.path.lexists(real):
            self._will_create(real)

    def _before_create(self, path: Any) -> None:
        place = _place(path)
        if not self._is_free(place) and place not in self._touched and not os.path.lexists(place):
            self._will_create(place)

    def _is_free(self, real: str) -> bool:
        """Whether a path needs no note: in the scratch folder, a device, or below a folder this run made itself."""
        return (real + os.sep).startswith(self._free) or real.startswith(self._created)

    def _will_create(self, real: str) -> None:
        self._touched.add(real)
        self._created = (*self._created, real + os.sep)
        self._note({"delete": real})

    def _tree_removed(self, args: tuple[Any, ...]) -> None:
        real = os.path.realpath(os.fsdecode(args[0]))
        if not (real + os.sep).startswith((*self._free, *self._created)):
            raise PermissionError(f"weaklink reruns may not delete a folder outside their scratch copy: {real}")

    def _break_link(self, link: str, truncates: bool) -> None:
        target = os.path.realpath(link)
        os.unlink(link)
        if not truncates and os.path.exists(target):
            shutil.copy2(target, link)

    def _note(self, entry: dict[str, str]) -> None:
        with open(self._journal, "a", encoding="utf-8") as journal:
            journal.write(json.dumps(entry) + "\n")
            journal.flush()
            os.fsync(journal.fileno())


def _copy_aside(original: str, copy: Path) -> None:
    try:
        shutil.copy2(original, copy)
    except OSError as error:
        raise PermissionError(
            f"weaklink reruns may not write {original}: no copy of it could be kept ({error.strerror})"
        ) from error


def _place(path: Any) -> str:
    """Where the name itself stands: links in the folders above it resolved, its own last part not."""
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(folder), name)


def undo(journal: Path) -> list[str]:
    """Restore every file the journal names, newest first, and empty it. Returns the paths that had been written.

    Called by the parent once the worker is gone; safe to call twice. What cannot be restored stays in the journal.

    Raises:
        StorageError: Some file could not be restored; all others were.
    """
    if not journal.exists():
        return []
    entries = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    written: list[str] = []
    failed: list[tuple[dict[str, str], OSError]] = []
    for entry in reversed(entries):
        path = Path(next(entry[key] for key in ("restore", "delete", "relink", "remake") if key in entry))
        written.append(str(path))
        try:
            _undo_one(entry, path)
        except OSError as error:
            failed.append((entry, error))
    if failed:
        journal.write_text("".join(json.dumps(entry) + "\n" for entry, _ in reversed(failed)), encoding="utf-8")
        entry, first = failed[0]
        raise StorageError(
            f"A file that a rerun wrote could not be restored: {first.strerror}.",
            about=str(first.filename or next(iter(entry.values()))),
            hint=f"the originals of {len(failed)} files are kept in {journal.parent}; see {journal}.",
        )
    journal.unlink()
    return written


def _undo_one(entry: dict[str, str], path: Path) -> None:
    if "remake" in entry:
        path.mkdir(parents=True, exist_ok=True)
    elif "restore" in entry:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(entry["copy"], path)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    if "relink" in entry:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(entry["target"])
