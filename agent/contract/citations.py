"""What a proposal relies on: rows that exist, with the values that stand there, among them the first row."""

from __future__ import annotations

from collections.abc import Iterator

from weaklink.agent.contract.first_boundary import dissents
from weaklink.agent.contract.values import agrees, listed, quoted
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence, Row, Value


def citations(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Every citation holds: the row, the field, the value."""
    rows = {row.id: row for row in reversed(evidence.rows)}  # of two rows of one id the first, as `Evidence.row` has it
    for citation in proposal.cited:
        row = rows.get(citation.row)
        if row is None:
            yield f"There is no row {quoted(citation.row)}; the rows are: {listed(row.id for row in evidence.rows)}."
            continue
        fields = _citable(row)
        if citation.field not in fields:
            yield f"The row {quoted(row.id)} has no {quoted(citation.field)}; it has: {listed(fields)}."
        elif not agrees(citation.value, fields[citation.field]):
            actual = quoted(fields[citation.field])
            yield f"{quoted(row.id)} has {quoted(citation.field)} = {actual}, not {quoted(citation.value)}."


def first_row_cited(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The row that the whole proposal stands on is cited."""
    anchor = _anchor(proposal, evidence)
    if anchor is not None and all(citation.row != anchor for citation in proposal.cited):
        yield f"The first row {quoted(anchor)} is not cited; cite it with one of its values."


def _citable(row: Row) -> dict[str, Value]:
    return {"status": row.status, "text": row.text, **row.values}


def _anchor(proposal: Proposal, evidence: Evidence) -> str | None:
    # The row the whole proposal stands on: the chain's, or the one it dissents at.
    if dissents(proposal, evidence):
        return proposal.first_row
    first = evidence.first_divergence
    return first.id if first else None
