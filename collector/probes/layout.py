"""Short tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from weaklink.collector.table.text import printable


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title and aligned columns: the first to the left, numbers to the right. Names are the user's: made safe."""
    lines = [list(columns), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    shown = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    return "\n".join([title, *(line.rstrip() for line in shown)])
