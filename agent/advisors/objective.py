"""The pages for OBJECTIVE: scores of the wrong kind, shapes that broadcast, a mode, an order of rows."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, moving, nothing
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row

# What OBJECTIVE/fed accuses, in the words of its values, and what the scores were taken for.
_FED = {
    "softmax_into_log_softmax": "The loss takes a softmax of its own and is given probabilities: between 0 and 1 they "
    "differ too little for the loss to fall far, and their gradient is damped.",
    "sigmoid_into_logits": "The loss takes a sigmoid of its own and is given probabilities: between 0 and 1 they never "
    "say no, and their gradient is damped.",
    "divergence_inputs": "The divergence expects log-probabilities and is given probabilities: it falls as they fall, "
    "whatever the targets are.",
    "positive_log_probabilities": "The likelihood expects log-probabilities and is given raw scores: it falls without "
    "end as they grow.",
}


def doubled_softmax(evidence: Evidence, row: Row) -> Proposal | None:
    """Feed the loss what it expects. None for scores that are only suspected: a density of one's own, a matching."""
    kind = next((name for name in _FED if row.values.get(name) is True), None)
    if row.status != "fail" or kind is None:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.first": "different", "loss.last": "different"}
    bounded = kind in ("softmax_into_log_softmax", "sigmoid_into_logits")
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="raw_scores_to_loss"),
        [
            # A loss that is given probabilities for logarithms may lie below zero: the right one is then no lower.
            Candidate("wrong_scores_to_loss", _FED[kind], lead | ({"loss.last": "down"} if bounded else {})),
            Candidate(
                "other",
                "The scores are intended, a second softmax as a bound on how certain the model may become, and are not "
                "what keeps the loss up: with those that the loss expects it ends no lower.",
                lead | {"loss.last": "up" if bounded else "same"},
            ),
        ],
        # A softmax inside the model stays in its output: only what reaches the loss is another.
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Give the loss the scores it expects, and keep the softmax for reports.", kind="objective"),
    )


def below_its_floor(evidence: Evidence, row: Row) -> Proposal | None:
    """Feed the loss log-probabilities. What still falls below its floor then has another sign."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="raw_scores_to_loss"),
        [
            Candidate(
                "wrong_scores_to_loss",
                "The loss is given scores that are no log-probabilities, and falls below the least value that it can "
                "have: with their log-softmax it has a floor.",
                lead,
            ),
            Candidate(
                "wrong_term_or_sign",
                "A sign is turned around, so that the loss has no floor whatever the scores are.",
                lead | {f"row[{row.id}]": "same"},
            ),
        ],
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Give the loss the logarithms of probabilities.", kind="objective"),
    )


def all_pairs(evidence: Evidence, row: Row) -> Proposal | None:
    """Let outputs and targets meet entry by entry. The line of the arithmetic is the row's last one."""
    if not row.diverges:
        return None
    sites = [site.place for site in row.where if site.line is not None]
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="match_target_shape", parameters={"site": sites[-1] if sites else ""}),
        [
            Candidate(
                "shape_misread",
                "Outputs and targets of different shapes are broadcast, so that each output meets every target: what "
                "is learned is the same for all examples.",
                lead,
            ),
            Candidate(
                "other",
                "The pairs are not what holds the loss: met entry by entry, it ends where it was.",
                lead | {"loss.last": "same"},
            ),
        ],
        ["input.first", "output.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Give outputs and targets the same shape before they meet.", kind="objective"),
    )


def left_in_eval_mode(evidence: Evidence, row: Row) -> Proposal | None:
    """Train in train mode."""
    if not row.diverges or row.values.get("training") is not False:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "output.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="set_mode", parameters={"mode": "train", "modules": "*"}),
        [
            Candidate(
                "wrong_mode_in_training",
                "The model was left in eval mode: dropout drops nothing, and normalisation uses statistics that do not "
                "follow the data.",
                lead,
            ),
            Candidate(
                "other",
                "What is switched off has no part in what is learned: in train mode the run goes the same way.",
                lead | {"output.first": "same", "loss.last": "same"},
            ),
        ],
        ["input.first", "target.first", "parameters.first[*]", *moving(evidence)],
        Repair(text="Call model.train() before the training steps, and after each evaluation.", kind="wiring"),
    )


def rows_out_of_order(evidence: Evidence, row: Row) -> Proposal | None:
    """Keep the rows in the order in which they entered the model."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "output.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="rows_in_order"),
        [
            Candidate(
                "shape_misread",
                "The model sorts its rows and returns them sorted: each output is scored with another row's target.",
                lead,
            ),
            Candidate(
                "pairing_broken",
                "The rows were put into another order before the model saw them: whatever it does with theirs, its "
                "outputs do not fit the targets.",
                nothing(lead),
            ),
        ],
        ["input.first", "target.first", "parameters.first[*]", *moving(evidence)],
        Repair(
            text="Undo the sorting before the outputs are returned, or pack with enforce_sorted=False.",
            kind="objective",
        ),
    )
