"""The pages about what a step consumes and what becomes of it: its order, its gradients, its memory, its result."""

from __future__ import annotations

import math

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, nothing
from weaklink.agent.advisors.rates import BEFORE_THE_STEP
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def clipping(evidence: Evidence, row: Row) -> Proposal | None:
    """Clip what the limit was meant for: unscaled gradients, before the step. None for a limit of the script's own."""
    limit = row.values.get("limit")
    if row.status != "fail" or not isinstance(limit, (int, float)):
        return None
    late = "wasted" in row.values
    if late and (row.values.get("norm") is None or not 0 < limit < math.inf):
        return None  # clipped by value
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "delta.net[*]": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="clip_grad_norm", parameters={"max": float(limit)})
        if late
        else ExperimentChoice(name="unscale_before_clipping"),
        [
            Candidate(
                "clipping_misordered",
                "The gradients are clipped at a moment when it changes no step: right before the step the limit acts."
                if late
                else "The limit meets gradients that are still multiplied by the scaler's scale: against the "
                "gradients themselves it leaves another step.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                "The moment makes no difference: clipped in time the steps are what they are.",
                lead | {"delta.net[*]": "same"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(
            text="Clip between backward and step."
            if late
            else "Call scaler.unscale_(optimizer) before the gradients are clipped.",
            kind="clipping",
        ),
    )


def never_stepped(evidence: Evidence, row: Row) -> Proposal | None:
    """Step after each backward. None where no optimizer was built."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "steps": "up", "delta.net[*]": "up", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="step_after_backward", parameters={"n": 1}),
        [
            Candidate(
                "step_missing_or_skipped",
                "The optimizer is never asked to step: where it steps after each backward the run learns.",
                lead,
            ),
            Candidate(
                "update_lost",
                "A step would change nothing: the optimizer does not move what the loss is computed with.",
                lead | {"delta.net[*]": "same", "loss.last": "same"},
            ),
        ],
        ["output.first", "loss.first", "gradient.first[*]", "row[GRADIENT/present]", "row[DEPENDENCY/reached]"],
        Repair(text="Let every window of backward calls end with optimizer.step().", kind="wiring"),
    )


def rounded_away(evidence: Evidence, row: Row) -> Proposal | None:
    """Take the steps in float32: what the parameters' own type rounds away is then kept."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "delta.net[*]": "up"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="float32_steps"),
        [
            Candidate(
                "update_lost",
                "Rate times gradient is below the resolution of the parameters' type: on float32 copies the same "
                "steps add up.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                "The steps are too small in any type: in float32 they bring the parameters no farther.",
                lead | {"delta.net[*]": "same"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(text="Keep the parameters in float32, and compute in 16 bit under autocast.", kind="precision"),
    )


def given_back(evidence: Evidence, row: Row) -> Proposal | None:
    """Keep what the steps reached where the first weights are written back."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "delta.net[*]": "up", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="keep_stepped"),
        [
            Candidate(
                "update_lost",
                "The first weights are written back again and again, so that nothing that the steps reach stays.",
                lead,
            ),
            Candidate(
                "other",
                "The weights are set back on purpose: where they are not, the loss ends no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(text="Let what is written back follow the steps: slow weights move in place.", kind="wiring"),
    )


def put_back(evidence: Evidence, row: Row) -> Proposal | None:
    """Take states as copies: then what is loaded is what was there when it was taken."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "delta.net[*]": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="copy_states"),
        [
            Candidate(
                "update_lost",
                "The state that is put back is the parameters' own memory: a copy brings back what they were.",
                lead,
            ),
            Candidate("other", "What is loaded is what is there anyway: a copy of it changes nothing.", nothing(lead)),
        ],
        BEFORE_THE_STEP,
        Repair(text="Copy the state when it is taken: copy.deepcopy(model.state_dict()).", kind="wiring"),
    )


def remembered(evidence: Evidence, row: Row) -> Proposal | None:
    """Let the optimizer begin without the state that it was given."""
    if not row.diverges:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "delta.net[*]": "different", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="reset_optimizer_state"),
        [
            Candidate(
                "optimizer_state_wrong",
                "The state belongs to other gradients than these: without it the run comes further.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                "The state is not what holds the run back: without it the loss ends no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(text="Begin with a new optimizer, or load the state that belongs to this run.", kind="wiring"),
    )
