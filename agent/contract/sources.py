"""Lines of the user's files that an answer relies on: shown to the model, and quoted as they stand there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weaklink.agent.contract.families import NONE
from weaklink.agent.contract.values import MAX_LISTED, filled, listed, quoted
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.proposal import Proposal, SourceCitation
from weaklink.collector.evidence import Evidence


def sources(proposal: Proposal, evidence: Evidence, shown: Shown | None = None) -> Iterator[str]:
    """Every cited line was shown and is quoted as it stands there; whoever asked for files cites one of their lines.

    Without `shown` no line was, so none can be cited: the playbook reads no files, and an experiment chosen by hand
    quotes none.
    """
    shown = shown or Shown()
    for source in proposal.sources:
        yield from _citation(source, shown)
    # Asked for and empty, a file has no line to cite.
    read = sorted(file for file in shown.read if shown.lines.get(file))
    if read and not proposal.sources and _must_cite(proposal, evidence):
        lines = "; ".join(f"{quoted(file)}, lines {_ranges(shown.lines[file])}" for file in read[:MAX_LISTED])
        yield f"Files were read and no line of them is cited; cite in sources at least one that was shown: {lines}."


def _must_cite(proposal: Proposal, evidence: Evidence) -> bool:
    """Whether it has the run changed, or departs from the chain: a question, or saying nothing, needs no grounds."""
    first = evidence.first_divergence
    chain = first.boundary if first else NONE
    return proposal.outcome == "experiment" or (filled(proposal.dissent) and proposal.first_boundary != chain)


def _citation(source: SourceCitation, shown: Shown) -> Iterator[str]:
    lines = shown.lines.get(source.file)
    if not lines:
        files = listed(sorted(file for file, known in shown.lines.items() if known))
        yield f"No line of {quoted(source.file)} was shown; the files of which lines were are: {files}."
        return
    text = _folded(source.text)
    line = lines.get(source.line)
    if line is not None and text in _folded(line):
        return
    about = f"line {quoted(source.line)} of {quoted(source.file)}"
    # A model that quotes well and counts badly is told the number, not only that its own is wrong.
    places = [number for number, known in lines.items() if text and text in _folded(known)]
    elsewhere = f"; that text stands in: {_ranges(places)}" if places else ""
    if line is None:
        yield f"{about} was not shown; the lines that were: {_ranges(lines)}{elsewhere}."
    else:
        yield f"{about} is {quoted(line)}, in which {quoted(source.text)} does not stand{elsewhere}."


def _folded(text: str) -> str:
    return " ".join(text.split())


def _ranges(numbers: Iterable[int]) -> str:
    """Line numbers as ranges, the tail cut where there are many."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    said = [str(first) if first == last else f"{first} to {last}" for first, last in found[:MAX_LISTED]]
    more = len(found) - MAX_LISTED
    return ", ".join([*said, f"{more} more ranges"] if more > 0 else said)
