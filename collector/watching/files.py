"""Files the script read, in order, with the user's line: a fault may live in one of them, where no source shows it.

Python tells every `open` as an audit event. What libraries read for themselves (sources, fonts, caches) and what the
run wrote itself is left out. Only names, sizes and moments are kept; of small text files it is read at the end what
they are made of, settings or data.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import torch

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.part import Part

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

Kind = Literal["configuration", "table", "array", "image", "checkpoint", "other"]
Moment = Literal["before training", "in training", "in evaluation"]

# A folder of images is known after its first ones; the rest is counted.
FILES_KEPT = 300
# Settings are written by people. A larger text is data.
SETTINGS_BYTES = 64 * 1024
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CODE = frozenset({".py", ".pyc", ".pyi", ".pyx", ".so", ".pyd", ".dll", ".dylib", ".ipynb", ".pth", ".egg-link"})
_KINDS: dict[str, Kind] = {
    **dict.fromkeys((".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf", ".env", ".properties"), "configuration"),
    **dict.fromkeys((".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".feather", ".xml", ".xlsx"), "table"),
    **dict.fromkeys((".npy", ".npz", ".h5", ".hdf5", ".bin", ".mat", ".idx", ".arrow", ".tar", ".zip", ".gz"), "array"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".wav", ".flac"), "image"),
    **dict.fromkeys((".pt", ".ckpt", ".safetensors", ".onnx", ".pkl", ".pickle", ".model"), "checkpoint"),
}  # fmt: skip
# Labels and manifests are written by hand or by another script, and are wrong more often than what they point at.
_PLAUSIBLE: tuple[Kind, ...] = ("table", "array", "other", "image", "checkpoint")


@dataclass
class FileRead:
    """One file, at its first opening.

    Attributes:
        name: Relative to the working folder where it lies there, else absolute.
        path: Where this run found it: a scratch copy, in a rerun.
        size: Bytes when it was opened; -1 where that is unknown.
        moment: What the run was doing.
    """

    name: str
    path: str
    size: int
    kind: Kind
    moment: Moment
    site: Site

    def place(self) -> Site:
        """The file as a site: it has no line of its own, but was read at one."""
        return Site(file=self.name, line=None, what=f"read at {self.site.place}")


@dataclass
class FilesRecord:
    """All files that were read; above some hundreds only their number.

    `sources`: paths of the user's own code that was executed, by name; known at the end.
    """

    files: list[FileRead] = field(default_factory=list)
    uncounted: int = 0
    sources: dict[str, str] = field(default_factory=dict)

    def configuration(self) -> list[Site]:
        """Settings, in the order in which they were read."""
        return [file.place() for file in self.files if file.kind == "configuration"]

    def data(self) -> list[Site]:
        """Data, manifests and checkpoints: tables first, then arrays; in the order in which they were read."""
        return [file.place() for kind in _PLAUSIBLE for file in self.files if file.kind == kind]

    def settings(self) -> list[FileRead]:
        """The settings themselves, for whoever looks for the line of one."""
        return [file for file in self.files if file.kind == "configuration"]


class FileReader(Part):
    """Hears of every file that is opened while the watcher looks."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._folder = os.path.abspath(os.getcwd()) + os.sep
        self._real = os.path.realpath(self._folder) + os.sep
        self._foreign = _foreign_folders()
        self._seen: set[str] = set()
        self._written: set[str] = set()

    def install(self) -> None:
        self.watcher.wrap(torch, "save", self._saved)
        _listen(self)

    def opened(self, path: Any, mode: Any, flags: Any) -> None:
        """A file is about to be opened."""
        if isinstance(path, int) or path is None:
            return
        place = os.path.abspath(os.fsdecode(path))
        if _writes(mode, flags):
            self._written.add(place)
            return
        if place in self._seen or place in self._written or not self._is_users(place):
            return
        site = self._reader(sys._getframe(1))
        if site is None:
            return
        self._seen.add(place)
        record = self.tape.record(FilesRecord)
        if len(record.files) >= FILES_KEPT:
            record.uncounted += 1
            return
        try:
            size = os.path.getsize(place)
        except OSError:
            return  # it is not there: a script that looks for its settings in several places
        kind = _KINDS.get(_suffix(place), "other")
        record.files.append(FileRead(self._name(place), place, size, kind, self._moment(), site))

    def finish(self) -> None:
        """Tell settings from data where the name alone does not, and note the sources."""
        record = self.tape.record(FilesRecord)
        record.sources = {name: path for name, path in self.watcher.code.files.items() if path.endswith(".py")}
        for file in record.files:
            if file.kind == "table" and _suffix(file.path) in (".json", ".txt") and 0 < file.size <= SETTINGS_BYTES:
                file.kind = _by_content(Path(file.path))

    @unseen_by_warnings
    def _saved(self, original: Callable[..., Any], obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):  # torch's own writer opens files where no audit event is raised
            self._written.add(os.path.abspath(os.fsdecode(f)))
        return original(obj, f, *args, **kwargs)

    def _moment(self) -> Moment:
        if self.tape.phase == "evaluation":
            return "in evaluation"
        return "in training" if self.tape.forwards else "before training"

    def _name(self, place: str) -> str:
        for folder in (self._folder, self._real):
            if place.startswith(folder):
                return place[len(folder) :]
        return place

    def _is_users(self, place: str) -> bool:
        if _suffix(place) in _CODE or "__pycache__" in place:
            return False
        if "/site-packages/" in place or "/dist-packages/" in place:
            return False
        return place.startswith((self._folder, self._real)) or not place.startswith(self._foreign)

    def _reader(self, frame: FrameType | None) -> Site | None:
        """The innermost line of the user's; None where an import stands before it: a library reads for itself."""
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename.startswith("<frozen importlib"):
                return None
            name = self.watcher.code.relative(filename)
            if name is not None:
                return Site(file=name, line=frame.f_lineno, what="file read")
            frame = frame.f_back
        return None


def _suffix(place: str) -> str:
    """The ending in small letters; `.env` of a file that is called nothing else."""
    name = os.path.basename(place).lower()
    return name if name.startswith(".") and "." not in name[1:] else os.path.splitext(name)[1]


def _foreign_folders() -> tuple[str, ...]:
    """Where the system, Python and its packages live, and what is there for an hour only."""
    python = [sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()]
    temporary = [tempfile.gettempdir(), "/tmp", "/var/tmp"]
    home = os.path.expanduser("~")
    own = [os.path.join(home, name) for name in (".config", ".cache/matplotlib", ".cache/torch_extensions")]
    system = ["/proc", "/sys", "/dev", "/usr", "/etc", "/lib", "/lib64", "/bin", "/opt/conda", "/System", "/Library"]
    found = {os.path.abspath(folder) + os.sep for folder in (*python, *temporary, *own, *system)}
    return tuple(sorted(found - {os.sep}))


def _writes(mode: Any, flags: Any) -> bool:
    # Some callers tell only a mode, some only flags.
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)


def _by_content(path: Path) -> Kind:
    """Settings or a table, for a small text: a JSON list is a table; of other texts each line of settings names one."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return "table"
    if path.suffix.lower() == ".json":
        return "configuration" if text.startswith("{") else "table"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    named = all("=" in line or line.startswith("--") for line in lines)
    return "configuration" if lines and named else "table"


# -- the hook, which Python keeps for as long as the process lives -----------------------------------------------------

_readers: list[weakref.ref[FileReader]] = []
_thread = threading.local()
_hooked = False


def _listen(reader: FileReader) -> None:
    global _hooked
    _readers[:] = [known for known in _readers if known() is not None] + [weakref.ref(reader)]
    if not _hooked:
        _hooked = True
        sys.addaudithook(_heard)


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _readers or getattr(_thread, "busy", False):
        return
    _thread.busy = True
    try:
        for known in _readers:
            reader = known()
            if reader is not None and not reader.watcher.paused:
                reader.watcher.guarded(reader.opened)(*args)
    except Exception:
        return  # nothing of ours may keep a file from being opened
    finally:
        _thread.busy = False
