"""The pages for targets that the loss leaves out, or scores where none is meant."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, moving
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def left_out(evidence: Evidence, row: Row) -> Proposal | None:
    """Supervise the label or the end token that is left out. None for masks that the script makes by hand."""
    label, token = row.values.get("label"), row.values.get("token")
    if not row.diverges or row.values.get("supervised") != 0:
        return None
    if isinstance(label, int) and row.values.get("ignore_index") == label:
        choice, missing = ExperimentChoice(name="without_ignore_index"), label
    elif isinstance(token, int):
        choice, missing = ExperimentChoice(name="supervise_token", parameters={"token": token}), token
    else:
        return None
    lead: dict[str, Expected] = {
        f"row[{row.id}]": PASSES,
        f"listed[{row.id}/predicted/{missing}]": "up",
        "loss.first": "different",
    }
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "supervision_missing",
                f"The loss leaves {missing} out, although it is meant to be learned: once it is a target, the model "
                "predicts it.",
                lead,
            ),
            Candidate(
                "capacity",
                f"The model cannot learn {missing}: even as a target it is predicted nowhere where it is due.",
                lead | {f"listed[{row.id}/predicted/{missing}]": "same"},
            ),
        ],
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Mask by length or by an attention mask, and ignore a label that no class has.", kind="objective"),
    )


def scored_padding(evidence: Evidence, row: Row) -> Proposal | None:
    """End each length before its padding. None where no blank is scored: then targets are longer than their inputs."""
    if row.status != "fail" or not row.values.get("with_blank"):
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.first": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="trim_target_lengths"),
        [
            Candidate(
                "wrong_reduction",
                "Padding is scored as labels: the lengths are those of the padded targets. Ended before it, no blank "
                "is left among the labels.",
                lead,
            ),
            Candidate(
                "label_convention",
                "A label of the data has the number that the loss takes for the blank, and stands among the others: "
                "whatever the lengths, it is still there.",
                lead | {f"row[{row.id}]": "same"},
            ),
        ],
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Give the loss the length of each target without its padding.", kind="objective"),
    )


def misplaced_prior(evidence: Evidence, row: Row) -> Proposal | None:
    """Give each class the number that fits its count."""
    order = row.values.get("order")
    if not row.diverges or not isinstance(order, list):
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="prior_by_class", parameters={"order": order}),
        [
            Candidate(
                "label_convention",
                "The numbers are listed in another order than the classes, and each class has another one's: sorted "
                "into place they are a power of its counts.",
                lead,
            ),
            Candidate(
                "other",
                "The numbers come from elsewhere, and which class has which makes no difference to what is learned.",
                lead | {"loss.last": "same"},
            ),
        ],
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="List counts by class index before weights are made of them.", kind="objective"),
    )
