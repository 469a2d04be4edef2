"""What the runs of one incident read: a file that changed between two of them contaminates the later one.

Every run gets the working folder laid anew and what it wrote elsewhere is undone. What is left: files that the user or
another process changed meanwhile, and files outside the folder that a native library wrote.
"""

from __future__ import annotations

from pathlib import Path

from weaklink.collector.evidence import Evidence
from weaklink.collector.scratch import FileState, state_of


class Inputs:
    """Remembers every file that a run read, as it was when the first run had read it.

    Args:
        folder: The user's working folder; relative names are files in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, FileState] = {}

    def changed(self, evidence: Evidence) -> list[str]:
        """Files this run read that are no longer what an earlier run found; new ones are remembered."""
        found = []
        for name in files_read(evidence):
            now = state_of(str(self._folder / name))
            if self._known.setdefault(name, now) != now:
                found.append(name)
        return found


def files_read(evidence: Evidence) -> list[str]:
    """Sources and opened files, relative to the working folder where they lie in it; at most some dozens are known."""
    row = evidence.row("TASK/files")
    opened = [row.values.get(kind) for kind in ("configuration", "data")] if row is not None else []
    names = [str(name) for listed in opened if isinstance(listed, list) for name in listed]
    return list(dict.fromkeys([*(source.path for source in evidence.sources), *names]))
