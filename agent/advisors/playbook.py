"""The built-in advisor: deterministic, offline, one page for each row that can diverge.

It names what the row allows and no more. Where no experiment of the catalogue can separate its mechanisms, it asks the
operator instead of inventing one.
"""

from __future__ import annotations

from collections.abc import Callable

from weaklink.agent.advisors import dependency, gradient, objective, ownership, pending, task, update
from weaklink.agent.advisors.base import cite
from weaklink.agent.advisors.causes import CAUSES, QUESTIONS, REPAIRS
from weaklink.agent.contract import BOUNDARY_OF, violations
from weaklink.agent.proposal import Mechanism, Proposal
from weaklink.collector.evidence import Evidence, Row

# The experiment that settles a row; None where this run offers too little to measure it by.
PAGES: dict[str, Callable[[Evidence, Row], Proposal | None]] = {
    "TASK/rule": task.broken_pairing,
    "OBJECTIVE/fed": objective.doubled_softmax,
    "DEPENDENCY/reached": dependency.cut_path,
    "GRADIENT/nonzero": gradient.dead_module,
    "OWNERSHIP/owned": ownership.missing_parameters,
    "UPDATE/scale": update.outgrown_step,
    "UPDATE/moved": update.lost_update,
    "UPDATE/pending": pending.early_step,
}


class Playbook:
    """Looks the first divergence up and answers with its page."""

    name = "playbook"

    def advise(self, evidence: Evidence, brief: str, violations: list[str]) -> Proposal:
        """The same proposal for the same evidence, always; objections change nothing here."""
        row = evidence.first_divergence
        if row is None:
            return _nothing(evidence)
        return _experiment(evidence, row) or _ask(row)


def _experiment(evidence: Evidence, row: Row) -> Proposal | None:
    page = PAGES.get(row.id)
    proposal = page(evidence, row) if page is not None else None
    # A run may lack just the measurement that would tell the mechanisms apart: then a question is the honest answer.
    return proposal if proposal is not None and not violations(proposal, evidence) else None


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
