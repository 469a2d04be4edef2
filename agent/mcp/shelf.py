"""Which incidents are served: the folders of one folder, by their names. No name leads anywhere else."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from weaklink.agent.record.incident import Incident
from weaklink.collector.errors import UsageError

# What `new_incident` makes, and nothing with which a path could be built.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,120}")
LARGEST_RECORD = 256 * 2**20  # bytes
EVENTS = "events.jsonl"


class Shelf:
    """The incidents of one folder.

    Args:
        root: The folder. It need not be there yet: the first diagnosis makes it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def names(self) -> list[str]:
        """Names of all incidents, the newest first: they begin with the time they were opened."""
        try:
            found = [entry.name for entry in os.scandir(self.root) if _NAME.fullmatch(entry.name)]
        except OSError:
            return []
        return sorted((name for name in found if self._holds_record(name)), reverse=True)

    def read(self, name: str) -> Incident:
        """One incident, intact.

        Args:
            name: Its name, or its path as `weaklink diagnose --json` printed it.

        Raises:
            UsageError: There is none of that name in the folder.
            RecordDamagedError: It is damaged.
        """
        return Incident.read(self.folder(name))

    def folder(self, name: str) -> Path:
        """The incident's folder.

        Raises:
            UsageError: There is none of that name in the folder.
        """
        plain = self._plain(name)
        if plain is None or not self._holds_record(plain):
            raise UsageError(
                "There is no such incident.", about=name[:200], hint="`list_incidents` names those that are served."
            )
        return self.root / plain

    def _plain(self, name: str) -> str | None:
        """The name alone. A path counts only if it is one of this folder's."""
        head, last = os.path.split(name)
        if not _NAME.fullmatch(last):
            return None
        try:
            inside = not head or Path(head).resolve() == self.root
        except (OSError, ValueError, RuntimeError):
            return None
        return last if inside else None

    def _holds_record(self, name: str) -> bool:
        """A real folder with a real record in it: a link could lead out of the folder, a pipe would never end."""
        try:
            folder, record = os.lstat(self.root / name), os.lstat(self.root / name / EVENTS)
        except OSError:
            return False
        return stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(record.st_mode) and record.st_size <= LARGEST_RECORD
