"""The page for OBJECTIVE/fed: probabilities where the loss expects raw scores."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, moving
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def doubled_softmax(evidence: Evidence, row: Row) -> Proposal | None:
    """Feed the loss what the softmax was fed. None for other scores, such as a sigmoid's: no experiment undoes them."""
    if row.values.get("softmax_into_log_softmax") is not True:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.first": "different", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="raw_scores_to_loss"),
        [
            Candidate(
                "wrong_scores_to_loss",
                "The loss takes a softmax of its own and is given probabilities: between 0 and 1 they differ too "
                "little for the loss to fall far, and their gradient is damped.",
                lead,
            ),
            Candidate(
                "other",
                "The second softmax is intended, as a bound on how certain the model may become, and is not what keeps "
                "the loss up: with raw scores it ends no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        # A softmax inside the model stays in its output: only what reaches the loss is another.
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Give the raw scores to the loss, and keep the softmax for reports.", kind="objective"),
    )
