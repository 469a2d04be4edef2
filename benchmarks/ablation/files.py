"""The subject's files as text: the script, settings, the heads of data files, then its modules, as room allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weaklink.agent.conversation.looks import ReadLines
from weaklink.agent.prompting.budget import estimated_tokens
from weaklink.agent.reading.library import Library
from weaklink.collector.table.text import printable

WIDTH = 400  # characters of a line
SETTINGS = (".json", ".toml", ".yaml", ".yml", ".ini", ".cfg")
SETTINGS_LINES = 200
HEAD_LINES = 12
LEAST_LINES = 10  # a shorter beginning of a module says nothing


@dataclass(frozen=True)
class ShownFile:
    """A heading, and lines that cannot break out of their place: each begins with a number or a mark of ours."""

    title: str
    lines: list[str]

    @property
    def tokens(self) -> int:
        """What it costs."""
        return estimated_tokens("\n".join(["", self.title, *self.lines]))


def line_counts(folder: Path) -> dict[str, int]:
    """How many lines each file has, by its path in the folder; of a binary file 0."""
    return {name: len(_lines(folder / name) or []) for name in _names(folder)}


def shown_files(folder: Path, arguments: Sequence[str], budget: int) -> tuple[list[ShownFile], list[str]]:
    """The files that fit, in the order of their worth, and the names of those that do not.

    Args:
        folder: The subject's folder.
        arguments: The script that is run, and its arguments: a file named there comes before the others.
        budget: Tokens, as estimated.
    """
    names = sorted(_names(folder), key=lambda name: (_rank(name, arguments), name))
    shown: list[ShownFile] = []
    left_out: list[str] = []
    for name in names:
        whole = _shown(folder, name)
        fitting = whole if whole.tokens <= budget else _beginning(whole, budget)
        if fitting is None:
            left_out.append(printable(name))
            continue
        shown.append(fitting)
        budget -= fitting.tokens
    return shown, left_out


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _rank(name: str, arguments: Sequence[str]) -> int:
    if name in arguments:
        return arguments.index(name)
    # Prose is rarely at fault.
    kinds = (name.endswith(SETTINGS), not name.endswith((".py", ".md", ".rst")), name.endswith(".py"), True)
    return len(arguments) + kinds.index(True)


def _shown(folder: Path, name: str) -> ShownFile:
    lines = _lines(folder / name)
    if lines is None:
        told = Library(folder).look(ReadLines(file=name)).text.splitlines()
        return ShownFile(
            f"## {printable(name)} (not text; a summary)", [f"> {printable(line, WIDTH)}" for line in told]
        )
    limit = len(lines) if name.endswith(".py") else SETTINGS_LINES if name.endswith(SETTINGS) else HEAD_LINES
    numbered = [f"{number:5d}| {printable(line.expandtabs(4), WIDTH)}" for number, line in enumerate(lines, start=1)]
    return _cut(f"## {printable(name)}", numbered, limit)


def _beginning(file: ShownFile, budget: int) -> ShownFile | None:
    """As much of a file as fits; None where that is too little."""
    low, high = 0, len(file.lines)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _cut(file.title, file.lines, middle).tokens <= budget else (low, middle - 1)
    return _cut(file.title, file.lines, low) if low >= min(LEAST_LINES, len(file.lines)) and low else None


def _cut(title: str, lines: list[str], limit: int) -> ShownFile:
    if limit >= len(lines):
        return ShownFile(title, lines)
    return ShownFile(title, [*lines[:limit], f"     | ({len(lines) - limit} more lines)"])


def _lines(path: Path) -> list[str] | None:
    """The lines of a text file; None of a binary one."""
    read = path.read_bytes()
    if b"\0" in read:
        return None
    try:
        return read.decode("utf-8-sig").split("\n")[: -1 if read.endswith(b"\n") else None]
    except UnicodeDecodeError:
        return None
