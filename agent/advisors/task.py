"""The page for TASK/rule: targets that do not follow the rule that was declared for them."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, moving
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def broken_pairing(evidence: Evidence, row: Row) -> Proposal | None:
    """Give each input the target that its rule gives.

    None where no target at all agrees: pairs in disorder agree now and then, so that speaks for another convention
    (classes numbered otherwise), which the network fits as well and a rerun therefore cannot tell.
    """
    agreement = row.values.get("agreement")
    if row.status != "fail" or not isinstance(agreement, (int, float)) or not agreement > 0:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "target.first": "different", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="realign_targets"),
        [
            Candidate(
                "pairing_broken",
                "Inputs and targets were brought out of order against each other: the targets are the rule's, of other "
                "rows, and nothing in an input tells its own.",
                lead,
            ),
            Candidate(
                "label_convention",
                "The targets follow a rule of their own, which the inputs carry as well as the declared one: with the "
                "declared targets the loss ends no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Reorder, filter and index inputs and targets together, by the same indices.", kind="data"),
    )
