"""The pages for OWNERSHIP/unregistered, OWNERSHIP/shared and OWNERSHIP/isolation."""

from __future__ import annotations

import glob

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, nothing
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row

# Past when the first step begins.
BEFORE_THE_STEP = ("output.first", "loss.first", "gradient.first[*]", "steps")


def unregistered(evidence: Evidence, row: Row) -> Proposal | None:
    """Let the optimizer hold what no model has. None where the layers are made anew at every call."""
    if row.status != "fail":
        return None
    passes = f"row[{row.id}]"
    lead: dict[str, Expected] = {passes: PASSES, "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="own_missing_parameters", parameters={"parameters": "*", "unregistered": True}),
        [
            Candidate(
                "not_registered",
                "Modules are kept where parameters() does not find them, so that no optimizer was given them. Held by "
                "one, they learn.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                "They would not move even if an optimizer held them: its rate is zero, or its step changes nothing.",
                {passes: PASSES, "loss.last": "same"},
            ),
            Candidate(
                "other",
                "They are random on purpose: trained, they leave the loss no lower.",
                {passes: PASSES, "loss.last": "up"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(text="Keep the modules in nn.ModuleList or nn.ModuleDict.", kind="wiring"),
    )


def shared(evidence: Evidence, row: Row) -> Proposal | None:
    """Give each place a module of its own, with the same first values."""
    passes = f"row[{row.id}]"
    container = str(row.values.get("container") or "")
    lead: dict[str, Expected] = {passes: PASSES, "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="untie_modules", parameters={"container": glob.escape(container)}),
        [
            Candidate(
                "shared_by_mistake",
                f"One module object stands in every place of {container or 'the model'}, where several were meant. "
                "Apart, they learn what one alone cannot.",
                lead,
            ),
            Candidate(
                "other",
                "The places share their weights on purpose: apart, they leave the loss no lower.",
                {passes: PASSES, "loss.last": "up"},
            ),
            Candidate(
                "rate_wrong",
                "The weights hardly move, shared or not: apart, the loss goes the way that it went.",
                {passes: PASSES, "loss.last": "same"},
            ),
        ],
        ["input.first", "output.first", "loss.first", "lr.first", "steps"],
        Repair(text="Make a module of its own for each place.", kind="wiring"),
    )


def mixed_objectives(evidence: Evidence, row: Row) -> Proposal | None:
    """Let each declared objective give gradients to its own parameters only."""
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="isolate_objectives"),
        [
            Candidate(
                "other",
                "An optimizer steps parameters with the gradient of an objective that may not touch them. Kept away, "
                "the run goes another way.",
                lead,
            ),
            Candidate(
                "stale_gradient",
                "These gradients were left by backward calls that belong to no declared objective, or by an allowed "
                "one: keeping the others away changes nothing.",
                nothing(lead),
            ),
        ],
        ["output.first", "loss.first", "steps"],
        Repair(
            text="Clear the gradients of what this objective may not touch before its optimizer steps.", kind="wiring"
        ),
    )
