"""Where in the user's own code something happened."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType, TracebackType

from weaklink.collector.evidence import Site

_OWN = str(Path(__file__).parent.parent) + "/"
# The file name that our wrappers give themselves: Python leaves such frames out of what its warnings count.
UNSEEN = "<weaklink, as importlib._bootstrap>"
# Code typed into an interpreter or a notebook cell has no file, and is the user's own.
_TYPED = ("<ipython-input", "<python-input", "<stdin>")


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths}
    own = Path(__file__).parent.parent
    folders |= {str(own), str(own.resolve()), str(Path(__file__).resolve().parent.parent)}
    return tuple(
        sorted({str(Path(folder)) + "/" for folder in folders} | {str(Path(f).resolve()) + "/" for f in folders})
    )


def _cell(filename: str) -> str | None:
    """`In[3]` for the code of a notebook's cell, whose file is none that a reader knows; None for any other file.

    As IPython's own tracebacks name it. A cell that ran twice unchanged has the number of its last execution.
    """
    interactive = sys.modules.get("IPython")
    if interactive is None:
        return None
    try:
        found = interactive.get_ipython().compile.format_code_name(filename)
        return str(found[1]) if found is not None else None
    except Exception:  # imported but not running, or of another version: then the file's own name stands
        return None


class UserCode:
    """Tells the user's frames from the libraries', and names them relative to the project.

    Args:
        root: Folder that paths are given relative to (the run's working folder).
        globs: Patterns over absolute paths that count as the user's although they lie in a library folder.
    """

    def __init__(self, root: Path, globs: tuple[str, ...] = ()) -> None:
        self._roots = tuple({str(root) + "/": None, str(root.resolve()) + "/": None})
        self._globs = globs
        self._libraries = _library_folders()
        self._known: dict[str, str | None] = {}
        self.files: dict[str, str] = {}

    def relative(self, filename: str) -> str | None:
        """The path as it stands in a site, or None where the file is not the user's."""
        if filename not in self._known:
            self._known[filename] = self._classify(filename)
            if (name := self._known[filename]) is not None:
                self.files[name] = filename
        return self._known[filename]

    def _classify(self, filename: str) -> str | None:
        if (cell := _cell(filename)) is not None:
            return cell
        if filename.startswith("<"):
            return filename if filename.startswith(_TYPED) else None
        absolute = str(Path(filename).absolute())
        chosen = any(fnmatch(absolute, pattern) for pattern in self._globs)
        foreign = "/site-packages/" in absolute or "/dist-packages/" in absolute
        if not chosen and (foreign or absolute.startswith(self._libraries)):
            return None
        for root in self._roots:
            if absolute.startswith(root):
                return absolute[len(root) :]
        return absolute

    def site(self, what: str) -> Site | None:
        """The innermost frame of the user's code above the caller; None when there is none on the stack."""
        return next((site for site, _ in self._frames(sys._getframe(1), what)), None)

    def direct_site(self, what: str) -> Site | None:
        """The frame that called a watched function, if it is the user's own; None where a library called it."""
        frame = self.direct_frame()
        name = self.relative(frame.f_code.co_filename) if frame is not None else None
        return Site(file=name, line=frame.f_lineno, what=what) if frame is not None and name is not None else None

    def direct_frame(self) -> FrameType | None:
        """The frame that called a watched function, whoever's it is."""
        frame: FrameType | None = sys._getframe(1)
        for ours in (_OWN, UNSEEN):  # who asks, then the wrappers; beyond them our own code is a library like any other
            while frame is not None and frame.f_code.co_filename.startswith(ours):
                frame = frame.f_back
        return frame

    def maker_site(self, what: str) -> Site | None:
        """The innermost function of the user's that is no constructor: where the script says that something is made.

        A line inside `__init__` says less than the one that calls it; where there is no function, the module's line.
        """
        best: dict[str, Site] = {}
        for site, function in self._frames(sys._getframe(1), what):
            best.setdefault(function if function in ("<module>", "__init__") else "function", site)
        return best.get("function") or best.get("<module>") or best.get("__init__")

    def _frames(self, frame: FrameType | None, what: str) -> Iterator[tuple[Site, str]]:
        """The user's frames on the stack, innermost first, and the function of each."""
        while frame is not None:
            name = self.relative(frame.f_code.co_filename)
            if name is not None:
                yield Site(file=name, line=frame.f_lineno, what=what), frame.f_code.co_name
            frame = frame.f_back

    def site_of_traceback(self, trace: TracebackType | None, what: str) -> Site | None:
        """The innermost frame of the user's code in a traceback."""
        found: Site | None = None
        while trace is not None:
            name = self.relative(trace.tb_frame.f_code.co_filename)
            if name is not None:
                found = Site(file=name, line=trace.tb_lineno, what=what)
            trace = trace.tb_next
        return found
