"""The files of a folder and of those below it, as far as they fit into one answer: the upper ones first."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from weaklink.agent.reading.decoding import shown_name
from weaklink.agent.reading.places import Found, Grounds, Place, Refusal

MOST_NAMES = 200
_SECONDS = 3.0


@dataclass(frozen=True)
class _Folder:
    name: str
    files: list[Found]
    more: int  # entries that did not fit


def listed(grounds: Grounds, place: Place) -> str:
    """Names with sizes, one a line, relative to the root; says what did not fit and what is never shown.

    Raises:
        Refusal: The place is no folder, or cannot be read.
    """
    if not place.real.is_dir():
        raise Refusal("is no folder: read it")
    deadline = time.monotonic() + _SECONDS
    lines: list[str] = []
    hidden, unseen, room = 0, 0, MOST_NAMES
    waiting = deque([place])
    while waiting:
        folder = waiting.popleft()
        if room <= 0 or time.monotonic() > deadline:
            unseen += 1
            continue
        entries, secrets, below = _entries(grounds, folder, first=folder is place)
        hidden += secrets
        waiting += below
        entries.sort(key=lambda entry: entry.kind == "folder")  # its own files before what lies below
        lines += [_line(entry) for entry in entries[:room]]
        if len(entries) > room:
            lines.append(f"... and {len(entries) - room} more in {shown_name(folder.name)}")
        room -= len(entries)
    return "\n".join(_with_remarks(grounds, place, lines, hidden, unseen))


def _entries(grounds: Grounds, folder: Place, first: bool) -> tuple[list[Found], int, list[Place]]:
    """What is shown of a folder, how many entries hold secrets by their names, and the folders in it."""
    shown: list[Found] = []
    secrets, below = 0, []
    try:
        for entry in grounds.entries(folder):
            if entry.kind.startswith("not read"):
                secrets += 1
                continue
            shown.append(entry)
            if entry.kind == "folder":
                below.append(entry.place)
    except Refusal:
        if first:
            raise
    return shown, secrets, below


def _with_remarks(grounds: Grounds, place: Place, lines: list[str], hidden: int, unseen: int) -> list[str]:
    lines = lines or ["no file that is shown"]
    if place.name == ".":
        lines += [f"{shown_name(each.name)}  opened by the run, outside of this folder" for each in grounds.elsewhere()]
    if unseen:
        lines.append(f"{unseen} folders were not listed: ask for one by its name")
    if hidden:
        lines.append(f"{hidden} entries are not shown: they hold secrets by their names")
    return lines


def _line(entry: Found) -> str:
    name = shown_name(entry.place.name)
    if entry.kind == "folder":
        return f"{name}/"
    return f"{name}  {entry.size} bytes" if entry.kind == "file" else f"{name}  {entry.kind}"
