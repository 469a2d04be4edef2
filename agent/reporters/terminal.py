"""An incident as plain text for a terminal. Every status is a word; colour only repeats it."""

from __future__ import annotations

import re

from weaklink.agent.reporters.blocks import Block, Bullets, Command, Facts, Heading, Paragraph, Section, Table
from weaklink.agent.reporters.chain import ChainLine, Kind, Reading, chain_lines, headline, reading_of
from weaklink.agent.reporters.content import result, sections
from weaklink.agent.reporters.layout import GAP, cells, pad, table, wrap
from weaklink.agent.reporters.text import PROSE_LIMIT, printable
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import Evidence

MIN_WIDTH = 40
MIN_TEXT = 30
SECTION_WIDTH = 12
LABEL_LIMIT = 20
TERM_LIMIT = 28
_DIGEST = re.compile(r"[0-9a-f]{64}")
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
    parts += [_section(section, width, color) for section in sections(incident)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _chain(evidence: Evidence, reading: Reading | None, width: int, color: bool) -> str:
    lines = chain_lines(evidence, reading)
    command, ended = headline(evidence)
    title = wrap(f"LEARNING CHAIN  {printable(command)}  ({printable(ended)})", width)
    label_width = min(LABEL_LIMIT, max(cells(printable(line.label)) for line in lines)) + GAP
    mark_width = max(cells(_mark(line)) for line in lines)
    text_width = width - SECTION_WIDTH - label_width - GAP - mark_width
    body: list[str] = []
    for line in lines:
        body += _row(line, label_width, text_width, width, color)
    return "\n".join([*(_paint(part, BOLD, color) for part in title), "", *body]) + "\n"


def _row(line: ChainLine, label_width: int, text_width: int, width: int, color: bool) -> list[str]:
    mark, text, ink = _mark(line), printable(line.text, PROSE_LIMIT), ""
    if not mark or text_width < MIN_TEXT:
        # Nothing to put beside the text, or no room for it: the text takes the rest of the line.
        text = f"{mark}  {text}" if mark else text
        mark, ink, text_width = "", COLORS[line.kind], max(width - SECTION_WIDTH - label_width, MIN_TEXT // 2)
    labels, texts = wrap(printable(line.label), label_width - GAP), wrap(text, text_width)
    rows = []
    for index in range(max(len(texts), len(labels))):
        head = pad(line.section if index == 0 else "", SECTION_WIDTH)
        body = pad(_at(texts, index), text_width)
        tail = f"  {_paint(mark, COLORS[line.kind], color)}" if mark and index == 0 else ""
        row = f"{_paint(head, BOLD, color)}{pad(_at(labels, index), label_width)}{_paint(body.rstrip(), ink, color)}"
        rows.append(row + " " * (cells(body) - cells(body.rstrip())) * bool(tail) + tail)
    return [row.rstrip() for row in rows]


def _at(lines: list[str], index: int) -> str:
    return lines[index] if index < len(lines) else ""


def _mark(line: ChainLine) -> str:
    # Both words come from fixed lists; nothing of the user's stands here.
    return "   ".join(part for part in (line.mark, line.note) if part)


def _section(section: Section, width: int, color: bool) -> str:
    lines = [_paint(section.title, BOLD, color)]
    for block in section.blocks:
        lines += [f"  {line}".rstrip() for line in _block(block, width - 2)]
    return "\n".join(lines)


def _block(block: Block, width: int) -> list[str]:
    if isinstance(block, Paragraph):
        return wrap(printable(block.text, PROSE_LIMIT), width)
    if isinstance(block, Heading):
        return wrap(printable(block.text), width)
    if isinstance(block, Command):
        # Not wrapped: a command is there to be copied.
        return ["  " + printable(block.text, PROSE_LIMIT)]
    if isinstance(block, Bullets):
        return [line for item in block.items for line in _hanging("- ", printable(item, PROSE_LIMIT), width)]
    if isinstance(block, Facts):
        return _facts(block, width)
    return _table(block, width)


def _facts(block: Facts, width: int) -> list[str]:
    names = [printable(name) for name, _ in block.rows]
    term = min(max(map(cells, names)), TERM_LIMIT)
    lines = []
    for name, (_, value) in zip(names, block.rows, strict=True):
        shown = printable(value, PROSE_LIMIT)
        if _DIGEST.fullmatch(shown):
            # A digest is there to be copied: wider than the terminal rather than broken.
            lines.append(pad(name, term + GAP) + shown)
        elif cells(name) > term:
            lines += [*wrap(name, width), *_hanging(" " * (term + GAP), shown, width)]
        else:
            lines += _hanging(pad(name, term + GAP), shown, width)
    return lines


def _table(block: Table, width: int) -> list[str]:
    rows = [block.head, *(tuple(printable(cell, PROSE_LIMIT) for cell in row) for row in block.rows)]
    return [f"  {line}" for line in table(rows, width - 2)]


def _hanging(head: str, text: str, width: int) -> list[str]:
    indent = cells(head)
    first, *rest = wrap(text, max(width - indent, MIN_TEXT // 2))
    return [head + first, *(" " * indent + line for line in rest)]


def _paint(text: str, code: str, color: bool) -> str:
    return f"{code}{text}{RESET}" if color and code and text.strip() else text
