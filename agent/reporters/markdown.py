"""An incident as Markdown, for an issue or a pull request. Untrusted text cannot start markup, HTML or a table cell."""

from __future__ import annotations

import re

from weaklink.agent.reporters.blocks import Block, Bullets, Command, Facts, Heading, Paragraph, Section
from weaklink.agent.reporters.chain import chain_lines, headline, reading_of, remarks
from weaklink.agent.reporters.content import result, sections
from weaklink.agent.reporters.limits import limits
from weaklink.agent.reporters.reading import digest_facts
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.table.lines import ChainLine
from weaklink.collector.table.text import PROSE_LIMIT, printable

# "_" inside a word marks nothing and stays readable; "$" starts a formula on some hosts.
_MARKUP = re.compile(r"[\\`*\[\]|~#$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINE_START = re.compile(r"(\d{1,9})(?=[.)])|(?=[-+=])")


def render_markdown(incident: IncidentView) -> str:
    """The whole incident. Any part after the opening may be missing."""
    parts = [f"# {escaped(_title(incident))}"]
    parts += [paragraph(text) for text in result(incident)]
    if incident.evidence is not None:
        lines = chain_lines(incident.evidence, reading_of(incident))
        head = ("Section", "Row", "Status", "Evidence")
        parts += ["## Learning chain", *(paragraph(text) for text in remarks(incident.evidence))]
        parts.append(_table(head, [_chain_row(line) for line in lines]))
    for section in sections(incident):
        parts += _section(section)
    parts += _section(Section("What this does not prove", (Bullets(tuple(limits(incident))),)))
    digests = tuple((name, value) for name, value in digest_facts(incident) if value)
    parts += _section(Section("Digests", (Facts(digests),)))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text that shows as it is: no markup, no HTML, no line break, no control character."""
    shown = _MARKUP.sub(lambda found: "\\" + found.group(), printable(text, PROSE_LIMIT))
    for char, entity in _ENTITIES.items():
        shown = shown.replace(char, entity)
    return shown


def paragraph(text: str) -> str:
    """Escaped text at the start of a line, where a number, "-", "+" or "=" would begin a list or a heading."""
    shown = escaped(text.strip())
    return _LINE_START.sub(lambda found: f"{found.group()}\\", shown, count=1) if _LINE_START.match(shown) else shown


def _title(incident: IncidentView) -> str:
    if incident.evidence is None:
        return incident.opened.subject.command
    command, ended = headline(incident.evidence)
    return f"{command} ({ended})"


def _chain_row(line: ChainLine) -> tuple[str, ...]:
    section = f"**{line.section}**" if line.section else ""
    word, note = escaped(line.word), escaped(line.note)
    if line.note.startswith("<-- "):
        word, note = f"**{word}**" if word else "", f"**{note}**"
    return (section, escaped(line.label), word, " ".join(part for part in (escaped(line.text), note) if part))


def _section(section: Section) -> list[str]:
    return [f"## {section.title}", *(_block(block) for block in section.blocks)]


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return paragraph(block.text)
    if isinstance(block, Heading):
        return f"### {escaped(block.text)}"
    if isinstance(block, Command):
        # An indented code block is literal: nothing inside it can end it, since the text is one line.
        return "    " + printable(block.text, PROSE_LIMIT)
    if isinstance(block, Bullets):
        return "\n".join(f"- {paragraph(item)}" for item in block.items)
    if isinstance(block, Facts):
        return "\n".join(f"- {paragraph(name)}: {escaped(value)}" for name, value in block.rows)
    return _table(block.head, [tuple(map(escaped, row)) for row in block.rows])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    ruler = tuple("---" for _ in head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (tuple(map(escaped, head)), ruler, *rows))
