"""Columns and line breaks for a terminal, counted in cells: a CJK character takes two, a combining mark none."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

MIN_COLUMN = 10
GAP = 2


def cells(text: str) -> int:
    """How many terminal cells a printable text takes."""
    return sum(map(_cell, text))


def pad(text: str, width: int) -> str:
    """The text with blanks up to that many cells."""
    return text + " " * (width - cells(text))


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells; words longer than a line are broken. Never empty."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        joined = f"{current} {word}" if current else word
        if cells(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        *whole, current = _chop(word, width)
        lines.extend(whole)
    return [*lines, current]


def column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Column widths with which these rows fit into `width`. The first row is the head, and wraps before the others."""
    head, *body = rows
    wanted = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    if body and sum(wanted) + GAP * (len(wanted) - 1) > width:
        words = [max(map(cells, title.split(" "))) for title in head]
        wanted = [max(word, *map(cells, column)) for word, *column in zip(words, *body, strict=True)]
    return fit(wanted, width)


def beside(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """One row of a table, as many lines as its tallest cell; text that does not fit wraps under its own column."""
    columns = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, columns))
    lines = []
    for index in range(height):
        parts = [
            pad(lines_[index] if index < len(lines_) else "", width)
            for lines_, width in zip(columns, widths, strict=True)
        ]
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def fit(widths: list[int], width: int) -> list[int]:
    """Column widths that fit, taken from the widest column first and never below a readable minimum."""
    room = width - GAP * (len(widths) - 1)
    while sum(widths) > room and max(widths) > MIN_COLUMN:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    return widths


def _cell(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) == "Mn":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _chop(word: str, width: int) -> list[str]:
    pieces, current, used = [], "", 0
    for char in word:
        size = _cell(char)
        if current and used + size > width:
            pieces.append(current)
            current, used = "", 0
        current += char
        used += size
    return [*pieces, current]
