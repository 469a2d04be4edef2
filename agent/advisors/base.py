"""The one method every advisor has, and how a row is quoted."""

from __future__ import annotations

from typing import Protocol

from weaklink.agent.proposal import Citation, Proposal
from weaklink.collector.evidence import Evidence, Row


class Advisor(Protocol):
    """Answers with a proposal; `violations` are the contract's objections to its last answer, verbatim."""

    name: str

    def advise(self, evidence: Evidence, brief: str, violations: list[str]) -> Proposal:
        """One proposal for this evidence."""
        ...


def cite(row: Row) -> list[Citation]:
    """A row's status and its first two numbers, quoted."""
    numbers = [
        key for key, value in row.values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    return [Citation(row=row.id, field="status", value=row.status)] + [
        Citation(row=row.id, field=key, value=row.values[key]) for key in numbers[:2]
    ]
