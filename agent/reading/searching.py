"""Lines that hold a text, over a whole tree, in bounded time; the lines are masked before they are searched.

A search over the bare lines would tell secrets: whether a key begins with these letters is answered by a hit.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from weaklink.agent.reading.decoding import LONGEST_SHOWN, decoded, is_text, shown_line, shown_name
from weaklink.agent.reading.places import Grounds, Place, Refusal, open_file
from weaklink.agent.reading.texts import masked

MOST_HITS = 50
MOST_CHARACTERS = 12 * 1024
_SECONDS = 5.0
_FILE_BYTES = 4 * 2**20
_TOTAL_BYTES = 256 * 2**20
_LONGEST_TEXT = 200
_BEFORE = 80  # characters that are shown before a hit far to the right


@dataclass(frozen=True)
class Hit:
    """A line that holds the text, as it is shown."""

    file: str
    line: int
    text: str


@dataclass
class Search:
    """What was found, and what was not looked into."""

    hits: list[Hit] = field(default_factory=list)
    text: str = ""
    files: int = 0
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    ended: str = ""


def searched(grounds: Grounds, place: Place, text: str) -> Search:
    """Search a file or a folder with all below it, upper and lower case alike.

    Raises:
        Refusal: There is no text to search for, or it is none that one line can hold.
    """
    if not text.strip() or "\n" in text or "\r" in text or len(text) > _LONGEST_TEXT:
        raise Refusal(f"search for one line's text of 1 to {_LONGEST_TEXT} characters")
    search = Search()
    deadline = time.monotonic() + _SECONDS
    wanted = text.casefold()
    room = MOST_CHARACTERS
    for file in _files(grounds, place, search):
        if time.monotonic() > deadline:
            search.ended = f"ended after {_SECONDS:.0f} seconds"
        elif search.bytes > _TOTAL_BYTES:
            search.ended = f"ended after {_TOTAL_BYTES // 2**20} MiB"
        for hit in () if search.ended else _hits(file, wanted, search):
            room -= len(hit.text) + len(hit.file) + 8
            if len(search.hits) == MOST_HITS or room < 0:
                search.ended = f"ended after {len(search.hits)} hits"
                break
            search.hits.append(hit)
        if search.ended:
            break
    search.text = "\n".join(_lines(search, text))
    return search


def _files(grounds: Grounds, place: Place, search: Search) -> Iterator[Place]:
    if not place.real.is_dir():
        yield place
        return
    waiting = deque([place])
    while waiting:
        try:
            for entry in grounds.entries(waiting.popleft()):
                if entry.kind == "folder":
                    waiting.append(entry.place)
                elif entry.kind == "file":
                    yield entry.place
                else:
                    search.skipped[entry.kind] += 1
        except Refusal:
            search.skipped["unreadable folders"] += 1
    if place.name == ".":
        yield from grounds.elsewhere()


def _hits(place: Place, wanted: str, search: Search) -> Iterator[Hit]:
    try:
        with open_file(place) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size + 1, _FILE_BYTES))
    except Refusal as refusal:
        search.skipped[str(refusal)] += 1
        return
    search.bytes += len(data)
    if not is_text(data):
        search.skipped["binary files"] += 1
        return
    search.files += 1
    if size > len(data):
        search.skipped[f"what lies beyond the first {_FILE_BYTES // 2**20} MiB of a file"] += 1
    # Most files hold the text nowhere: bytes tell so at a fraction of what masking costs.
    if wanted.isascii() and data.isascii() and wanted.encode() not in data.lower():
        return
    for number, line in enumerate(masked(place.name, decoded(data, cut=size > len(data)).lines), 1):
        at = line.casefold().find(wanted)
        if at >= 0:
            yield Hit(place.name, number, _around(line, at))


def _around(line: str, at: int) -> str:
    """A line as it is read, or the part around a hit that lies too far to the right to be seen there."""
    if at < LONGEST_SHOWN - _BEFORE:
        return shown_line(line)
    return f"[from character {at - _BEFORE + 1}] …" + shown_line(line[at - _BEFORE :])


def _lines(search: Search, text: str) -> Iterator[str]:
    if not search.hits:
        yield f"no line holds {shown_name(text)}"
    for hit in search.hits:
        yield f"{shown_name(hit.file)}:{hit.line}: {hit.text}"
    yield f"({len(search.hits)} lines in {search.files} text files{'; ' + search.ended if search.ended else ''})"
    for why, count in search.skipped.most_common():
        yield f"(skipped: {count} × {why})"
