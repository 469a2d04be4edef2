"""The pages for TASK about data: items, their order, broken rows, and inputs that hold the answer."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, moving, nothing
from weaklink.agent.measurements import take
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def items_written_over(evidence: Evidence, row: Row) -> Proposal | None:
    """Undo what reading an item writes into what is stored."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="read_items_anew"),
        [
            Candidate(
                "input_corrupted",
                "A transform works in place on what the dataset stores, so that each further reading applies it to its "
                "own result: the model is trained on other inputs in every pass.",
                lead,
            ),
            Candidate(
                "other",
                "What is written there reaches no input that is trained on: read as it was stored, the run goes the "
                "same way.",
                lead | {"loss.last": "same"},
            ),
        ],
        ["parameters.first[*]", *moving(evidence)],
        Repair(text="Transform a copy of the item, or out of place.", kind="data"),
    )


def sorted_rows(evidence: Evidence, row: Row) -> Proposal | None:
    """Shuffle the loader that reads rows sorted by class. None where its line is not known."""
    made = next((site for site in row.where if site.line is not None), None)
    if not row.diverges or made is None:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "input.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="shuffle_data", parameters={"seed": 0, "site": made.place}),
        [
            Candidate(
                "data_not_mixed",
                "The rows come class after class and nothing shuffles them: each batch pulls the model to its own "
                "class, and away from those before.",
                lead,
            ),
            Candidate(
                "other",
                "The order is not what the losses show: mixed, the run ends where it did.",
                lead | {"loss.last": "same"},
            ),
        ],
        ["parameters.first[*]", *moving(evidence)],
        Repair(text="Shuffle the training rows (shuffle=True).", kind="data"),
    )


def one_order(evidence: Evidence, row: Row) -> Proposal | None:
    """Let each pass of a distributed sampler have an epoch of its own. The first one stays as it is."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="shuffle_data", parameters={"seed": 0, "site": ""}),
        [
            Candidate(
                "data_not_mixed",
                "The sampler is not told which epoch begins, and draws the order of the first one every time.",
                lead,
            ),
            Candidate(
                "other",
                "The data set puts its rows in another order by itself: told of its epochs, the sampler deals out what "
                "it did.",
                nothing(lead),
            ),
        ],
        ["input.first", "output.first", "loss.first", "parameters.first[*]"],
        Repair(text="Call sampler.set_epoch(epoch) before each epoch.", kind="wiring"),
    )


def broken_rows(evidence: Evidence, row: Row) -> Proposal | None:
    """Leave the rows out that are not finite. Whole batches of them, or a loss that is finite, leave nothing to try."""
    if row.status != "fail" or take(evidence, "loss.trend").value != "non-finite":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="drop_rows", parameters={"rows": "nonfinite"}),
        [
            Candidate(
                "input_corrupted",
                "Single examples hold values that are not finite, and one of them spoils all parameters: without them "
                "the loss stays finite.",
                lead,
            ),
            Candidate(
                "nonfinite",
                "An operation of the model makes such values out of finite inputs as well: without these examples the "
                "loss is lost all the same.",
                lead | {"loss.last": "same"},
            ),
        ],
        ["parameters.first[*]", "steps"],
        Repair(text="Leave out or fill in what is not finite before it becomes an input.", kind="data"),
    )


def shown_answers(evidence: Evidence, row: Row) -> Proposal | None:
    """Hide the later tokens. None where a layer looks both ways by its own make: no mask changes that."""
    if row.status != "fail" or row.values.get("both_ways") is not False:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "output.first": "different", "loss.last": "up"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="causal_mask"),
        [
            Candidate(
                "target_leak",
                "Attention without a causal mask shows the model the token that it is to predict: hidden, the loss is "
                "what predicting costs.",
                lead,
            ),
            Candidate(
                "other",
                "The model does not use what it is shown there: with the later tokens hidden the loss ends no higher.",
                lead | {"loss.last": "down"},
            ),
        ],
        ["input.first", "target.first", "parameters.first[*]", *moving(evidence)],
        Repair(
            text="Hide the later tokens from the model: give it its causal mask in training as well.",
            kind="data",
        ),
    )
