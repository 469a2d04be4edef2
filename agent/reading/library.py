"""The files of a project, for a reader that is not trusted and that may be wrong: listed, searched, read, bounded.

Everything a language model sees of files comes through here. Nothing is written, nothing is executed, nothing outside
the root is touched but the very files that the run opened; secrets are masked before a line is searched or shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from weaklink.agent.conversation.looks import ListFiles, Looked, ReadLines, SearchFiles
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.reading.decoding import shown_line, shown_name, visible
from weaklink.agent.reading.listing import listed
from weaklink.agent.reading.places import Grounds, Place, Refusal, open_file
from weaklink.agent.reading.searching import searched
from weaklink.agent.reading.summaries import Summary, summary_of, summary_suits
from weaklink.agent.reading.texts import Text, read_text

MOST_LINES = 200
MOST_CHARACTERS = 16 * 1024  # of one answer
MOST_BYTES = 32 * 2**20  # read of one file


class Library:
    """What may be read of a project.

    Args:
        root: The project's folder.
        opened: Files that the run opened, relative to `folder` or absolute: readable by exactly these names wherever
            they lie. Take them from a run that was made on this machine only: an evidence from elsewhere can name
            any file.
        folder: What relative names of `opened` start from; the root where it is None.
        leave_out: Folders of which nothing is listed or read, such as the one of all incidents.
        shown: Where all shown lines are noted.
        most_bytes: How many bytes of one file are read at most.
    """

    def __init__(
        self,
        root: Path,
        opened: Sequence[str] = (),
        *,
        folder: Path | None = None,
        leave_out: Sequence[Path] = (),
        shown: Shown | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.shown = Shown() if shown is None else shown
        self._grounds = Grounds(root, opened, root if folder is None else folder, leave_out)
        self._most_bytes = most_bytes
        self._last: tuple[tuple[str, int, int, int], Text] | None = None

    @property
    def root(self) -> Path:
        """The project's folder, without links."""
        return self._grounds.root

    def look(self, request: ListFiles | SearchFiles | ReadLines) -> Looked:
        """What a model asked to see, or why not. Never raises for anything that can be asked."""
        try:
            if isinstance(request, ListFiles):
                return self._answer(request, listed(self._grounds, self._grounds.find(request.path)))
            if isinstance(request, SearchFiles):
                return self._search(request)
            return self._read(request, asked=True)
        except Refusal as refusal:
            return _refused(request, str(refusal))

    def head(self, file: str, lines: int) -> Looked:
        """The first lines of a text file, or the summary of a binary one, for an excerpt. Never raises."""
        return self.excerpt(file, 1, max(1, lines))

    def excerpt(self, file: str, first: int, last: int) -> Looked:
        """Lines of a file that are shown without having been asked for. Never raises."""
        request = ReadLines(file=file, first=first, last=last)
        try:
            return self._read(request, asked=False)
        except Refusal as refusal:
            return _refused(request, str(refusal))

    def text(self, file: str) -> Text | None:
        """A text file, secrets masked, to choose an excerpt from; None where there is none that may be read.

        Nothing counts as shown until `excerpt` answers it.
        """
        try:
            place = self._grounds.find(file)
            with open_file(place) as opened:
                return self._text(place, opened)
        except Refusal:
            return None

    def _read(self, request: ReadLines, asked: bool) -> Looked:
        place = self._grounds.find(request.file)
        if place.real.is_dir():
            raise Refusal("is a folder: list it")
        with open_file(place) as file:
            size = os.fstat(file.fileno()).st_size
            text = self._text(place, file)
            if text is None:
                return self._summary(request, summary_of(place.name, file, size), place.name, asked)
            return self._lines(request, text, asked, self._table_summary(request, place, text, asked))

    def _text(self, place: Place, file: BinaryIO) -> Text | None:
        """The text of an open file; one that is read in stretches is masked once."""
        state = os.fstat(file.fileno())
        key = (place.name, state.st_ino, state.st_size, state.st_mtime_ns)
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        text = read_text(place.name, file, state.st_size, self._most_bytes)
        if text is not None:
            self._last = (key, text)
        return text

    def _summary(self, request: ReadLines, summary: Summary, name: str, asked: bool) -> Looked:
        """A binary file's summary, its lines numbered: they can be cited like those of a text."""
        lines = summary.text.split("\n")
        self.shown.add(visible(name), 1, lines, asked=asked)
        return Looked(
            do="read", request=_asked(request), ok=True, text="\n".join(_numbered(1, lines)), file=visible(name),
            first=1, last=len(lines), sha256=summary.sha256,
        )  # fmt: skip

    def _table_summary(self, request: ReadLines, place: Place, text: Text, asked: bool) -> str:
        """What stands before the first lines of a table or of JSON that was asked for as a whole."""
        if not asked or request.first != 1 or request.last is not None or not summary_suits(text.name):
            return ""
        with open_file(place) as file:
            return summary_of(text.name, file, text.size).text + "\n\n"

    def _lines(self, request: ReadLines, text: Text, asked: bool, before: str) -> Looked:
        total = len(text.lines)
        first, last = self._range(request, text)
        shown: list[str] = []
        room = MOST_CHARACTERS - len(before)
        for line in text.lines[first - 1 : last]:
            written = shown_line(line)
            room -= len(written) + 8
            if room < 0 and shown:
                break
            shown.append(written)
        last = first + len(shown) - 1
        head = f"{shown_name(text.name)}, " + (f"lines {first} to {last} of {_total(text)}" if total else "empty")
        head += f" ({text.size} bytes, {text.encoding})"
        wanted = total if request.last is None else min(request.last, total)
        if last < wanted:
            head += f"; this answer ends here: ask for first={last + 1} to go on"
        if shown:
            self.shown.add(visible(text.name), first, shown, asked=asked)
        answer = "\n".join([before + head, *_numbered(first, shown)])
        return Looked(
            do="read", request=_asked(request), ok=True, text=answer, file=visible(text.name),
            first=first if shown else None, last=last if shown else None, sha256=text.sha256,
        )  # fmt: skip

    def _range(self, request: ReadLines, text: Text) -> tuple[int, int]:
        total = len(text.lines)
        first = request.first
        last = first + MOST_LINES - 1 if request.last is None else min(request.last, first + MOST_LINES - 1)
        if first < 1:
            raise Refusal(f"lines count from 1, and first is {_bounded(first)}")
        if last < first:
            raise Refusal(f"last ({_bounded(last)}) lies before first ({_bounded(first)})")
        if first > max(total, 1):
            raise Refusal(f"{shown_name(text.name)} has {_total(text)} lines, and first is {_bounded(first)}")
        return first, min(last, total)

    def _search(self, request: SearchFiles) -> Looked:
        found = searched(self._grounds, self._grounds.find(request.path), request.text)
        for hit in found.hits:
            self.shown.add(visible(hit.file), hit.line, [hit.text])
        return self._answer(request, found.text)

    def _answer(self, request: ListFiles | SearchFiles, text: str) -> Looked:
        return Looked(do=request.do, request=_asked(request), ok=True, text=text)


def _numbered(first: int, lines: Sequence[str]) -> list[str]:
    width = len(str(first + len(lines) - 1))
    return [f"{number:>{width}}  {line}" for number, line in enumerate(lines, first)]


def _total(text: Text) -> str:
    return str(len(text.lines)) if text.whole else f"more than {len(text.lines)}"


def _bounded(number: int) -> str:
    return str(number) if abs(number) < 10**12 else "far outside"


def _asked(
    request: ListFiles | SearchFiles | ReadLines,
) -> dict[str, bool | int | float | str | list[str] | list[int] | None]:
    return {name: _short(value) for name, value in request.model_dump(exclude={"do"}).items()}


def _short(value: str | int | None) -> str | int | None:
    """A request's value as it can stand in a record: no lone surrogate, no text or number without end."""
    if isinstance(value, str):
        return shown_line(value, 1000)
    if isinstance(value, int) and abs(value) >= 2**53:
        return "a number beyond 2^53"
    return value


def _refused(request: ListFiles | SearchFiles | ReadLines, why: str) -> Looked:
    return Looked(do=request.do, request=_asked(request), ok=False, text=why)
