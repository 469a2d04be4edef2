"""An incident as plain text for a terminal. Every status is a word; colour only repeats it."""

from __future__ import annotations

from collections.abc import Sequence

from weaklink.agent.reporters.blocks import Block, Bullets, Command, Facts, Heading, Paragraph, Section, Table
from weaklink.agent.reporters.chain import Reading, chain_lines, headline, reading_of, remarks
from weaklink.agent.reporters.content import result, sections
from weaklink.agent.reporters.text import is_digest
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import Evidence
from weaklink.collector.table.columns import chain_text
from weaklink.collector.table.layout import GAP, beside, cells, column_widths, pad, wrap
from weaklink.collector.table.lines import Kind
from weaklink.collector.table.text import PROSE_LIMIT, printable

MIN_WIDTH = 40
TERM_LIMIT = 36
# From this width on a section's title stands beside its text, as a boundary does in the chain; below it, above.
BESIDE_WIDTH = 90
TITLE_WIDTH = 15
RESET, BOLD = "\x1b[0m", "\x1b[1m"
COLORS: dict[Kind, str] = {
    "pass": "\x1b[32m",
    "fail": "\x1b[31m",
    "suspected": "\x1b[33m",
    "withdrawn": "\x1b[2m",
    "not_measured": "\x1b[2m",
    "evidence": "",
}


def render_chain(evidence: Evidence, width: int = 100, color: bool = False) -> str:
    """The learning chain as a table."""
    return _chain(evidence, None, max(width, MIN_WIDTH), color)


def render_incident(incident: IncidentView, width: int = 100, color: bool = False) -> str:
    """The whole incident, from the chain to what to do next. Any part after the opening may be missing."""
    width = max(width, MIN_WIDTH)
    parts = []
    if incident.evidence is not None:
        parts.append(_chain(incident.evidence, reading_of(incident), width, color))
    parts.append("\n".join(line for text in result(incident) for line in wrap(printable(text, PROSE_LIMIT), width)))
    gap = "\n" if width >= BESIDE_WIDTH else "\n\n"
    parts.append(gap.join(_section(section, width, color) for section in sections(incident)))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def render_sections(parts: Sequence[Section], width: int = 100, color: bool = False) -> str:
    """Sections alone, without chain and result."""
    width = max(width, MIN_WIDTH)
    gap = "\n" if width >= BESIDE_WIDTH else "\n\n"
    return gap.join(_section(part, width, color) for part in parts) + "\n"


def _chain(evidence: Evidence, reading: Reading | None, width: int, color: bool) -> str:
    lines = chain_lines(evidence, reading)
    command, ended = headline(evidence)
    title = wrap(f"LEARNING CHAIN  {printable(command)}  ({printable(ended)})", width)
    notes = [line for text in remarks(evidence) for line in _hanging("  ", printable(text, PROSE_LIMIT), width)]
    body = chain_text(lines, width, lambda text, of: _paint(text, BOLD if of == "section" else COLORS[of], color))
    return "\n".join([*(_paint(part, BOLD, color) for part in title), *notes, "", body]) + "\n"


def _section(section: Section, width: int, color: bool) -> str:
    beside = width >= BESIDE_WIDTH
    indent = TITLE_WIDTH if beside else GAP
    lines = [" " * indent + line for line in _blocks(section.blocks, width - indent)]
    if not beside:
        return "\n".join([_paint(section.title, BOLD, color), *(line.rstrip() for line in lines)])
    first, *rest = lines
    head = _paint(section.title, BOLD, color) + " " * (TITLE_WIDTH - cells(section.title))
    return "\n".join(line.rstrip() for line in [head + first[indent:], *rest])


def _blocks(blocks: Sequence[Block], width: int) -> list[str]:
    """All blocks; tables of one head share their columns, and the head is shown once."""
    tables: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for block in blocks:
        if isinstance(block, Table):
            tables.setdefault(block.head, [block.head]).extend(_cells(block))
    widths = {head: column_widths(rows, width - GAP) for head, rows in tables.items()}
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Table):
            rows = [*([block.head] if block.head in tables else []), *_cells(block)]
            tables.pop(block.head, None)
            lines += [" " * GAP + line for row in rows for line in beside(row, widths[block.head])]
        else:
            lines += _block(block, width)
    return lines


def _block(block: Paragraph | Heading | Command | Bullets | Facts, width: int) -> list[str]:
    if isinstance(block, Paragraph):
        return wrap(printable(block.text, PROSE_LIMIT), width)
    if isinstance(block, Heading):
        return wrap(printable(block.text), width)
    if isinstance(block, Command):
        # Not wrapped: a command is there to be copied.
        return ["  " + printable(block.text, PROSE_LIMIT)]
    if isinstance(block, Bullets):
        return [line for item in block.items for line in _hanging("- ", printable(item, PROSE_LIMIT), width)]
    return _facts(block, width)


def _facts(block: Facts, width: int) -> list[str]:
    names = [printable(name) for name, _ in block.rows]
    term = min(max(map(cells, names)), TERM_LIMIT)
    lines = []
    for name, (_, value) in zip(names, block.rows, strict=True):
        shown = printable(value, PROSE_LIMIT)
        if is_digest(shown):
            # A digest is there to be copied: wider than the terminal rather than broken.
            lines.append(pad(name, term + GAP) + shown)
        elif cells(name) > term:
            lines += [*wrap(name, width), *_hanging(" " * (term + GAP), shown, width)]
        else:
            lines += _hanging(pad(name, term + GAP), shown, width)
    return lines


def _cells(block: Table) -> list[tuple[str, ...]]:
    return [tuple(printable(cell, PROSE_LIMIT) for cell in row) for row in block.rows]


def _hanging(head: str, text: str, width: int) -> list[str]:
    indent = cells(head)
    first, *rest = wrap(text, max(width - indent, 15))
    return [head + first, *(" " * indent + line for line in rest)]


def _paint(text: str, code: str, color: bool) -> str:
    return f"{code}{text}{RESET}" if color and code and text.strip() else text
