"""The learning chain as lines with words for every status, ready for any renderer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weaklink.agent.reporters.reading import effective_divergence, withdrawn_row
from weaklink.agent.reporters.text import number, plural
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import BOUNDARIES, Evidence, Outcome, Row, in_chain_order
from weaklink.collector.table.lines import ChainLine, note_of, table_line, unmeasured

QUESTION = "<-- QUESTION"
WITHDRAWN = "(the rerun did not confirm it)"


@dataclass(frozen=True)
class Reading:
    """How rows read once the incident is known. `question` is a row or, where none is named, a boundary."""

    divergence: Row | None
    withdrawn: str | None = None
    question: str | None = None


def reading_of(incident: IncidentView) -> Reading:
    """The divergence that stands, the row that was withdrawn, and the row an open question is about."""
    withdrawn = withdrawn_row(incident)
    proposal = incident.proposal
    asks = proposal is not None and (proposal.question is not None or proposal.dissent is not None)
    return Reading(
        divergence=effective_divergence(incident),
        withdrawn=withdrawn.id if withdrawn else None,
        question=(proposal.first_row or proposal.first_boundary) if proposal is not None and asks else None,
    )


def chain_lines(evidence: Evidence, reading: Reading | None = None) -> list[ChainLine]:
    """All rows in chain order. A boundary without a row is shown as not measured, never left out."""
    reading = reading or Reading(divergence=evidence.first_divergence)
    rows = in_chain_order(evidence.rows)
    lines: list[ChainLine] = []
    for boundary in BOUNDARIES:
        own = [row for row in rows if row.boundary == boundary] or [unmeasured(boundary)]
        for position, row in enumerate(own):
            lines.append(_line(row, reading, section=boundary if position == 0 else ""))
    return lines


def not_measured(evidence: Evidence) -> int:
    """How many lines of the chain were not measured."""
    return sum(line.kind == "not_measured" for line in chain_lines(evidence))


def headline(evidence: Evidence) -> tuple[str, str]:
    """The subject's command, and how the run ended."""
    outcome = evidence.outcome
    return evidence.subject.command, f"{plural(outcome.steps, 'step')}, {_ended(outcome)}"


def remarks(evidence: Evidence) -> list[str]:
    """What to know before reading the chain: why the run ended as it did, and what weaklink itself could not do."""
    found = [evidence.outcome.note] if evidence.outcome.note else []
    if evidence.problems:
        found.append(f"{plural(len(evidence.problems), 'problem')} of weaklink's own while observing")
    return found


def _line(row: Row, reading: Reading, section: str) -> ChainLine:
    divergence = reading.divergence
    first = divergence is not None and row.id == divergence.id
    if first and divergence is not None:
        row = divergence
    if row.id == reading.withdrawn:
        return replace(table_line(row, section, WITHDRAWN, first), word="withdrawn", kind="withdrawn")
    return table_line(row, section, _note(row, reading, first, section), first)


def _note(row: Row, reading: Reading, first: bool, section: str) -> str:
    asked = not first and reading.question is not None and reading.question in (row.id, section)
    return QUESTION if asked else note_of(row, first)


def _ended(outcome: Outcome) -> str:
    seconds = f"{outcome.seconds:.1f} s"
    raised = outcome.raised.type if outcome.raised else "an exception"
    code = "" if outcome.exit_code is None else f" with code {number(outcome.exit_code)}"
    return {
        "completed": f"completed in {seconds}",
        "raised": f"raised {raised} after {seconds}",
        "exited": f"exited{code} after {seconds}",
        "stopped": f"stopped by weaklink after {seconds}",
        "deadline": f"ended at the deadline after {seconds}",
        "interrupted": f"interrupted after {seconds}",
        "killed": f"killed after {seconds}",
    }[outcome.ended]
