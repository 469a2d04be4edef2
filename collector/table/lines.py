"""One line of the chain's table: a row with a word for its status and a note for what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weaklink.collector.evidence import BOUNDARIES, Row, Status, first_divergence, in_chain_order

Kind = Literal["pass", "fail", "suspected", "evidence", "not_measured", "withdrawn"]
FIRST_DIVERGENCE = "<-- FIRST DIVERGENCE"
SUSPECTED_HERE = "<-- SUSPECTED HERE"
DOWNSTREAM = "(downstream)"
WORDS: dict[Status, str] = {
    "pass": "ok",
    "fail": "FAIL",
    "suspected": "SUSPECTED",
    "evidence": "",
    "not_measured": "-",
}


@dataclass(frozen=True)
class ChainLine:
    """One line of the table. `section` is empty except on a boundary's first line.

    `word` is the status in a word (empty for evidence, "-" for not measured), `note` what the line means for the
    diagnosis. Both come from fixed lists: nothing of the user's stands there.
    """

    boundary: str
    section: str
    label: str
    word: str
    text: str
    note: str
    kind: Kind
    first: bool = False


def table_lines(rows: list[Row]) -> list[ChainLine]:
    """All rows in chain order. A boundary without a row is shown as not measured, never left out."""
    divergence = first_divergence(rows)
    ordered = in_chain_order(rows)
    lines: list[ChainLine] = []
    for boundary in BOUNDARIES:
        own = [row for row in ordered if row.boundary == boundary] or [unmeasured(boundary)]
        for position, row in enumerate(own):
            first = divergence is not None and row.id == divergence.id
            lines.append(table_line(row, boundary if position == 0 else "", note_of(row, first), first))
    return lines


def table_line(row: Row, section: str, note: str, first: bool) -> ChainLine:
    """The line of one row."""
    text = f"not measured: {row.reason}" if row.status == "not_measured" else row.text
    return ChainLine(row.boundary, section, row.label, WORDS[row.status], text, note, row.status, first)


def note_of(row: Row, first: bool) -> str:
    """What stands behind the text: the first divergence, what follows from it, and on which basis a row fails."""
    if first:
        return f"{FIRST_DIVERGENCE} ({row.basis})" if row.status == "fail" else SUSPECTED_HERE
    if row.downstream:
        return DOWNSTREAM
    return f"({row.basis})" if row.basis else ""


def unmeasured(boundary: str) -> Row:
    """The row of a boundary that has none."""
    return Row(id=f"{boundary}/-", status="not_measured", text="", reason="no row was recorded")
