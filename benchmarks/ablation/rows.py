"""The evidence as lines of text: what contradicts the intended system first, then the rest in the chain's order."""

from __future__ import annotations

from weaklink.agent.contract.values import quoted
from weaklink.agent.prompting.budget import estimated_tokens
from weaklink.collector.evidence import Evidence, Row, in_chain_order

LONGEST = 600  # characters of a text or a value


def first_divergence(evidence: Evidence) -> str:
    """The first row that contradicts the intended system, and how surely."""
    row = evidence.first_divergence
    return "none" if row is None else f"{row.id}, {row.status}"


def shown_rows(evidence: Evidence, budget: int) -> tuple[list[str], int]:
    """The rows that fit into so many tokens, one or more lines each, and how many do not."""
    first, rows = evidence.first_divergence, in_chain_order(evidence.rows)
    ranked = sorted(rows, key=lambda row: (row is not first, not row.diverges, row.status == "not_measured"))
    lines: list[str] = []
    for taken, row in enumerate(ranked):
        told = _told(row, whole=row.diverges)
        budget -= estimated_tokens("\n".join(["", *told]))
        if budget < 0:
            return lines, len(ranked) - taken
        lines += told
    return lines, 0


def _told(row: Row, whole: bool) -> list[str]:
    status = row.status.replace("_", " ") + (f" ({row.basis})" if row.basis else "")
    after = ", downstream of the first divergence" if row.downstream else ""
    lines = [f"- {row.id}: {status}{after}: {quoted(row.reason or row.text, LONGEST)}"]
    if whole:
        lines += [f"  - {quoted(name)} = {quoted(value, LONGEST)}" for name, value in row.values.items()]
    if whole or row.status == "evidence":
        places = [(site, "" if site.line is None else f" line {site.line}") for site in row.where]
        lines += [f"  - at {quoted(site.file)}{line}: {quoted(site.what)}" for site, line in places]
    return lines
