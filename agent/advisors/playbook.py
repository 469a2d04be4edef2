"""The built-in advisor: deterministic, offline, one page for each row that can diverge.

It names what the row allows and no more. Where no experiment of the catalogue can separate its mechanisms, it asks the
operator instead of inventing one.
"""

from __future__ import annotations

from weaklink.agent.advisors.base import cite
from weaklink.agent.advisors.causes import CAUSES, QUESTIONS, REPAIRS
from weaklink.agent.advisors.ownership import missing_parameters
from weaklink.agent.contract import BOUNDARY_OF
from weaklink.agent.proposal import Mechanism, Proposal
from weaklink.collector.evidence import Evidence, Row


class Playbook:
    """Looks the first divergence up and answers with its page."""

    name = "playbook"

    def advise(self, evidence: Evidence, brief: str, violations: list[str]) -> Proposal:
        """The same proposal for the same evidence, always; objections change nothing here."""
        row = evidence.first_divergence
        if row is None:
            return _nothing(evidence)
        if row.id == "OWNERSHIP/owned" and row.status == "fail":
            proposal = missing_parameters(evidence, row)
            if proposal is not None:
                return proposal
        return _ask(row)


def _nothing(evidence: Evidence) -> Proposal:
    if evidence.outcome.backwards == 0:
        return Proposal(outcome="inconclusive", first_boundary="NONE")
    return Proposal(outcome="nothing_to_repair", first_boundary="NONE")


def _ask(row: Row) -> Proposal:
    causes = CAUSES.get(row.id, ())
    return Proposal(
        outcome="ask_operator",
        first_boundary=row.boundary,
        first_row=row.id,
        cited=cite(row),
        mechanisms=[
            Mechanism(id=family, boundary=BOUNDARY_OF.get(family, row.boundary), explanation=text)
            for family, text in causes
        ],
        question=QUESTIONS.get(row.id, "What was intended here? No experiment separates the causes of this row."),
        repair=REPAIRS.get(row.id),
    )
