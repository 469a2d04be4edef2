"""The chain's table in columns: boundary, row, status, evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from weaklink.collector.table.layout import GAP, cells, pad, wrap
from weaklink.collector.table.lines import ChainLine, Kind
from weaklink.collector.table.text import PROSE_LIMIT, printable

SECTION_WIDTH = 12
LABEL_LIMIT = 20
MIN_TEXT = 40

# Paints a text, and what it is of: a section's name or a line of that kind. Without colour it returns the text.
Painted = Literal["section"] | Kind
Paint = Callable[[str, Painted], str]


def chain_text(lines: list[ChainLine], width: int, paint: Paint = lambda text, of: text) -> str:
    """The whole table, at most `width` cells wide."""
    columns = _Columns(lines, width)
    return "\n".join(row for line in lines for row in columns.show(line, paint))


class _Columns:
    """The columns' widths. Where they leave the evidence too little room, boundaries get lines of their own."""

    def __init__(self, lines: list[ChainLine], width: int) -> None:
        self.label = min(LABEL_LIMIT, max(cells(printable(line.label)) for line in lines)) + GAP
        self.word = max(cells(line.word) for line in lines) + GAP
        self.beside = width - SECTION_WIDTH - self.label - self.word >= MIN_TEXT
        self.section = SECTION_WIDTH if self.beside else GAP
        self.text = width - self.section - self.label - self.word

    def show(self, line: ChainLine, paint: Paint) -> list[str]:
        """One row of the chain, as many lines as it takes."""
        labels = wrap(printable(line.label), self.label - GAP)
        texts = self._texts(line, paint)
        rows = [] if self.beside or not line.section else [paint(line.section, "section")]
        for index in range(max(len(texts), len(labels))):
            section = line.section if index == 0 and self.beside else ""
            word = line.word if index == 0 else ""
            rows.append(
                paint(section, "section")
                + " " * (self.section - cells(section))
                + pad(_at(labels, index), self.label)
                + paint(word, line.kind)
                + " " * (self.word - cells(word))
                + _at(texts, index)
            )
        return [row.rstrip() for row in rows]

    def _texts(self, line: ChainLine, paint: Paint) -> list[str]:
        """The evidence, dim where nothing was measured, with the note behind it or on a line of its own."""
        texts = wrap(printable(line.text, PROSE_LIMIT), self.text)
        dim = line.kind in ("not_measured", "withdrawn")
        shown = [paint(text, line.kind) if dim else text for text in texts]
        notes = [paint(note, line.kind) for note in wrap(line.note, self.text)] if line.note else []
        if not notes:
            return shown
        gap = 3 if texts[-1] else 0
        if cells(texts[-1]) + gap + cells(line.note) > self.text:
            return [*shown, *notes]
        return [*shown[:-1], shown[-1] + " " * gap + notes[0]]


def _at(lines: list[str], index: int) -> str:
    return lines[index] if index < len(lines) else ""
