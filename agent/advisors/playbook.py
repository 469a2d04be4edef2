"""The built-in advisor: deterministic, offline, one page for each row that can diverge.

It names what the row allows and no more. Where no experiment of the catalogue can separate its mechanisms, it asks the
operator instead of inventing one.
"""

from __future__ import annotations

from collections.abc import Callable

from weaklink.agent.advisors import (
    capability,
    clearing,
    data,
    dependency,
    evaluation,
    gradient,
    nonfinite,
    objective,
    ownership,
    pending,
    rates,
    registration,
    steps,
    supervision,
    task,
    update,
)
from weaklink.agent.advisors.base import cite
from weaklink.agent.advisors.causes import CAUSES, QUESTIONS, REPAIRS
from weaklink.agent.contract import BOUNDARY_OF, violations
from weaklink.agent.proposal import Mechanism, Proposal
from weaklink.collector.evidence import Evidence, Row

# The experiment that settles a row; None where this run offers too little to measure it by.
PAGES: dict[str, Callable[[Evidence, Row], Proposal | None]] = {
    "TASK/rule": task.broken_pairing,
    "TASK/item": data.items_written_over,
    "TASK/order": data.sorted_rows,
    "TASK/epoch_order": data.one_order,
    "TASK/finite": data.broken_rows,
    "TASK/leak": data.shown_answers,
    "OBJECTIVE/fed": objective.doubled_softmax,
    "OBJECTIVE/floor": objective.below_its_floor,
    "OBJECTIVE/shapes": objective.all_pairs,
    "OBJECTIVE/broadcast": objective.all_pairs,
    "OBJECTIVE/mode": objective.left_in_eval_mode,
    "OBJECTIVE/independence": objective.rows_out_of_order,
    "OBJECTIVE/supervised": supervision.left_out,
    "OBJECTIVE/prior": supervision.misplaced_prior,
    "OBJECTIVE/sequence": supervision.scored_padding,
    "DEPENDENCY/reached": dependency.cut_path,
    "DEPENDENCY/terms": dependency.lost_term,
    "DEPENDENCY/stop_gradient": dependency.trained_target,
    "DEPENDENCY/declared": dependency.frozen,
    "GRADIENT/pre_existing": clearing.never_cleared,
    "GRADIENT/cleared": clearing.cleared_early,
    "GRADIENT/finite": nonfinite.singular_operation,
    "GRADIENT/nonzero": gradient.vanished_gradient,
    "OWNERSHIP/owned": ownership.missing_parameters,
    "OWNERSHIP/unregistered": registration.unregistered,
    "OWNERSHIP/shared": registration.shared,
    "OWNERSHIP/isolation": registration.mixed_objectives,
    "UPDATE/scale": update.outgrown_step,
    "UPDATE/moved": update.lost_update,
    "UPDATE/declared": update.lost_update,
    "UPDATE/pending": pending.early_step,
    "UPDATE/schedule": rates.schedule,
    "UPDATE/lr": rates.no_rate,
    "UPDATE/direction": rates.uphill,
    "UPDATE/clipping": steps.clipping,
    "UPDATE/steps": steps.never_stepped,
    "UPDATE/resolution": steps.rounded_away,
    "UPDATE/returned": steps.given_back,
    "UPDATE/restored": steps.put_back,
    "UPDATE/state": steps.remembered,
    "CAPABILITY/fit": capability.held_back,
    "CAPABILITY/signal": capability.faded_signal,
    "EVALUATION/dropout": evaluation.dropping,
    "EVALUATION/buffers": evaluation.stale_statistics,
    "EVALUATION/weights": evaluation.other_weights,
    "EVALUATION/mode": evaluation.train_mode,
    "EVALUATION/restored": evaluation.never_kept,
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
