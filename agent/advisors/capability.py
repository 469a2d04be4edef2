"""Pages for CAPABILITY: what keeps a run from fitting even one pinned batch."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, nothing
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def held_back(evidence: Evidence, row: Row) -> Proposal | None:
    """Take away the regularization without which the batch is fitted. None where neither kind was it."""
    choices = {
        "without dropout": ("dropout", ExperimentChoice(name="without_dropout")),
        "without weight decay": ("weight decay", ExperimentChoice(name="without_weight_decay")),
    }
    cure = row.values.get("cure")
    if not isinstance(cure, str) or cure not in choices:
        return None
    name, choice = choices[cure]
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "down"}
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "regularization_wrong", f"The {name} is so strong that even one pinned batch is not fitted.", lead
            ),
            Candidate(
                "rate_wrong", f"The steps are too small: without {name} nothing is fitted either.", nothing(lead)
            ),
            Candidate("capacity", f"The model is too small: without {name} nothing is fitted either.", nothing(lead)),
        ],
        # What dropout draws comes after the parameters, weight decay after the first gradients.
        ["target.first", "parameters.first[*]", "steps"],
        Repair(text=f"Take the {name} down: it keeps the run from fitting anything.", kind="objective"),
    )


def faded_signal(evidence: Evidence, row: Row) -> Proposal | None:
    """Draw all weights anew, so large that each layer passes on what tells examples apart."""
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="reinitialize", parameters={"module": "*", "scheme": "kaiming_uniform"}),
        [
            Candidate(
                "signal_vanishes",
                "Each layer passes on less of what tells the examples apart; weights that are drawn for its "
                "nonlinearity pass it on.",
                lead,
            ),
            Candidate("capacity", "The model is too small, with whatever weights it begins.", nothing(lead)),
            Candidate("rate_wrong", "The steps are too small, with whatever weights it begins.", nothing(lead)),
        ],
        ["input.first", "target.first", "steps"],
        Repair(text="Initialize the layers for their nonlinearity, or normalise between them.", kind="architecture"),
    )
