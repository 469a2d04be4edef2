"""Making the result of an instrument: columns of plain values become rows and a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weaklink.collector.asked import TABLE_LINES, InstrumentResult
from weaklink.collector.evidence import Value
from weaklink.collector.probes.layout import table
from weaklink.collector.table.text import printable

_NAME = 120


def found(
    name: str, step: int, title: str, columns: Sequence[str], rows: Sequence[Sequence[Value]], notes: Sequence[str] = ()
) -> InstrumentResult:
    """A result with figures. `rows` have a value for each column; a table that is too long keeps its two ends."""
    return InstrumentResult(
        name=name,
        step=step,
        rows=[dict(zip(columns, row, strict=True)) for row in rows],
        table=table(title, columns, [[_shown(value) for value in row] for row in _bounded(rows, len(columns))]),
        notes=[printable(note, 400) for note in notes],
    )


def missing(name: str, step: int, reason: str) -> InstrumentResult:
    """A result without figures."""
    return InstrumentResult(name=name, step=step, reason=printable(reason, 400))


def _bounded(rows: Sequence[Sequence[Value]], columns: int) -> list[Sequence[Value]]:
    if len(rows) <= TABLE_LINES:
        return list(rows)
    half = TABLE_LINES // 2
    left_out: list[Value] = [f"... {len(rows) - 2 * half} left out ...", *[""] * (columns - 1)]
    return [*rows[:half], left_out, *rows[-half:]]


def _shown(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return "x".join(str(item) for item in value) or "scalar"
    return printable(str(value), _NAME)
