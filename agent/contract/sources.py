"""Lines of files that a proposal relies on: they were shown, and they read as they are quoted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weaklink.agent.contract.values import filled, listed, quoted
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.proposal import Proposal, SourceCitation

_MOST_RANGES = 6


def sources(proposal: Proposal, shown: Shown) -> Iterator[str]:
    """Every cited line was shown and holds the quoted text; who asked to read files cites what was read."""
    for source in proposal.sources:
        yield from _as_shown(source, shown)
    stands_on_reading = proposal.outcome == "experiment" or filled(proposal.dissent)
    read = sorted(file for file in shown.read if shown.lines.get(file))  # of an empty file nothing can be cited
    if read and stands_on_reading and not proposal.sources:
        yield f"You read {listed(read)}; cite in sources, with file and line, what you rely on there."


def _as_shown(source: SourceCitation, shown: Shown) -> Iterator[str]:
    lines = shown.lines.get(source.file)
    if lines is None:
        files = listed(shown.lines) if shown.lines else "none"
        yield f"The file {quoted(source.file)} was not shown; shown were: {files}."
        return
    line = lines.get(source.line)
    if line is None:
        yield f"Line {source.line} of {quoted(source.file)} was not shown; shown were lines {_ranges(lines)}."
    elif _folded(source.text) not in _folded(line):
        elsewhere = [number for number, other in lines.items() if _folded(source.text) in _folded(other)]
        hint = f"; that stands in line {elsewhere[0]}" if elsewhere else ""
        yield f"{quoted(source.file)} line {source.line} reads {quoted(line.strip())}, not {quoted(source.text)}{hint}."


def _folded(text: str) -> str:
    """Blanks of any length are one: a model seldom keeps the indentation."""
    return " ".join(text.split())


def _ranges(lines: Mapping[int, str]) -> str:
    """Line numbers as ranges: `1 to 40, 52`."""
    found: list[list[int]] = []
    for number in sorted(lines):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    told = [str(first) if first == last else f"{first} to {last}" for first, last in found]
    more = len(told) - _MOST_RANGES
    return ", ".join([*told[:_MOST_RANGES], f"{more} more"] if more > 0 else told) or "none"
