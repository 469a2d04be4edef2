"""The pages for GRADIENT/pre_existing and GRADIENT/cleared: gradients cleared too late, and too early."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, nothing
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row

# All of it is past when the first gradient is cleared, or kept.
BEFORE_CLEARING = ("output.first", "loss.first", "gradient.first[*]", "lr.first", "steps")


def never_cleared(evidence: Evidence, row: Row) -> Proposal | None:
    """Clear what a step has used before the next backward."""
    passes = f"row[{row.id}]"
    lead: dict[str, Expected] = {passes: PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="zero_grad_before_backward"),
        [
            Candidate(
                "stale_gradient",
                "The gradients are never cleared: each step repeats all earlier ones. Cleared, the loss takes another "
                "way.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                "What is left over hardly counts beside the new gradients, the size of the steps does: cleared, the "
                "loss goes the way that it went.",
                {passes: PASSES, "loss.last": "same"},
            ),
        ],
        BEFORE_CLEARING,
        Repair(text="Call optimizer.zero_grad() once before each backward.", kind="wiring"),
    )


def cleared_early(evidence: Evidence, row: Row) -> Proposal | None:
    """Keep the gradients of all backward calls until the step."""
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="keep_grad_until_step"),
        [
            Candidate(
                "gradient_cleared_early",
                "The gradients of all but the last backward before a step are cleared by zero_grad. Kept, all of them "
                "reach the step.",
                lead,
            ),
            Candidate(
                "graph_cut",
                "No zero_grad takes them away: the earlier losses give nothing that would stay, and keeping it changes "
                "nothing.",
                nothing(lead),
            ),
        ],
        BEFORE_CLEARING,
        Repair(text="Clear the gradients once before the first backward of each step.", kind="wiring"),
    )
