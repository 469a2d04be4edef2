"""The pages for UPDATE: a step longer than what it moves, and a step that moves nothing."""

from __future__ import annotations

import math

from weaklink.agent.advisors.page import (
    PASSES,
    Becomes,
    Candidate,
    Expected,
    experiment,
    listed,
    model_parameters,
    movement,
    moving,
    nothing,
)
from weaklink.agent.measurements import take
from weaklink.agent.patterns import exact_pattern
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row

# The control, not a verdict: a step this small against its parameters is one nobody suspects.
MODEST_STEP = 0.01


def outgrown_step(evidence: Evidence, row: Row) -> Proposal | None:
    """Step with a smaller rate. None without the size of the step, or where the loss found back by itself."""
    if row.status == "fail" and row.basis == "controlled":
        return _too_large(evidence, row)
    ratio, last = row.values.get("ratio"), take(evidence, "loss.last").value
    if not isinstance(ratio, (int, float)) or not MODEST_STEP < ratio < math.inf or not isinstance(last, float):
        return None
    factor = _power_of_ten(ratio)
    if math.isfinite(last):
        return _rising(evidence, row, factor)
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "lr.first": "different", "loss.last": "different"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="scale_lr", parameters={"factor": factor}),
        [
            Candidate(
                "rate_wrong",
                # The measured ratio stays out of it: what is claimed is the same on every machine.
                "The learning rate is too large: its steps are longer than the parameters they move. With "
                f"{factor:g} of it the loss stays finite.",
                lead,
            ),
            Candidate(
                "nonfinite",
                "An operation overflows or divides by zero whatever the size of the steps: the loss ends as it did.",
                # The steps no longer outgrow anything, and the loss is still lost.
                lead | {f"row[{row.id}]": Becomes("evidence"), "loss.last": "same"},
            ),
        ],
        ["output.first", "loss.first", "gradient.first[*]", *moving(evidence)],
        Repair(text="Lower the learning rate until its steps stay short against the parameters.", kind="learning_rate"),
    )


def _too_large(evidence: Evidence, row: Row) -> Proposal | None:
    """A copy of the run learned at a share of its rate: whether the run itself does."""
    factor = row.values.get("factor")
    if not isinstance(factor, float) or not 0.0 < factor < 1.0:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "lr.first": "different", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="scale_lr", parameters={"factor": factor}),
        [
            Candidate(
                "rate_wrong",
                "The learning rate is too large: its first steps bring the parameters where nothing is learned any "
                f"more. At {factor:g} of it the run learns.",
                lead,
            ),
            Candidate(
                "initial_weights_wrong",
                "The run begins where nothing can be learned: at a smaller rate it stays there.",
                lead | {f"row[{row.id}]": "same", "loss.last": "same"},
            ),
        ],
        ["output.first", "loss.first", "gradient.first[*]", *moving(evidence)],
        Repair(text="Lower the learning rate.", kind="learning_rate"),
    )


def _rising(evidence: Evidence, row: Row, factor: float) -> Proposal | None:
    """The loss stayed finite and went up: too long a step, or one in the wrong direction."""
    if take(evidence, "loss.trend").value != "rises":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "lr.first": "different", "loss.trend": Becomes("falls")}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="scale_lr", parameters={"factor": factor}),
        [
            Candidate(
                "rate_wrong",
                "The learning rate is too large: its steps are longer than the parameters they move. With "
                f"{factor:g} of it the loss falls.",
                lead,
            ),
            Candidate(
                "wrong_term_or_sign",
                "The steps go uphill (a sign, or maximize=True): shorter ones climb as well.",
                lead | {"loss.trend": "same"},
            ),
        ],
        ["output.first", "loss.first", "gradient.first[*]", *moving(evidence)],
        Repair(text="Lower the learning rate until its steps stay short against the parameters.", kind="learning_rate"),
    )


def _power_of_ten(ratio: float) -> float:
    """The largest one, 1e-k, that brings the ratio to at most `MODEST_STEP`."""
    return float(f"1e{-math.ceil(math.log10(ratio / MODEST_STEP))}")


def lost_update(evidence: Evidence, row: Row) -> Proposal | None:
    """Let a plain optimizer step at the run's own rate. None where a parameter is not owned, or the rate is not one."""
    names = set(listed(row, "still"))
    still = [record for record in model_parameters(evidence) if record.name in names]
    others = [record.name for record in model_parameters(evidence) if record.name not in names]
    pattern = exact_pattern([record.name for record in still], others)
    rates = set(evidence.steps[0].lr) if evidence.steps else set()
    rate = rates.pop() if len(rates) == 1 else math.nan
    groups = len(evidence.steps[0].lr) if evidence.steps else 0
    if row.status != "fail" or not still or pattern is None or not 0 < rate < math.inf:
        return None
    if row.values.get("without_gradient"):
        if not row.where:
            return None
        waits = ExperimentChoice(name="defer_step_until_backward", parameters={"site": row.where[0].place})
        return _without_gradient(evidence, row, waits, pattern)
    if not all(record.owned and record.gradient == "nonzero" for record in still):
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **movement(evidence, pattern)}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="fresh_optimizer", parameters={"kind": "SGD", "lr": rate}),
        [
            Candidate(
                "update_lost",
                "The optimizer's own step loses the update: a plain step at the same rate moves the parameters.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                f"Rate times gradient is below the resolution of the parameters: at a rate of {rate:g} a plain step "
                "moves them as little.",
                nothing(lead),
            ),
        ],
        # The fresh optimizer has one group: what stands in the steps beside several rates is another text.
        ["output.first", "loss.first", "gradient.first[*]", "steps", *(["lr.first"] if groups == 1 else [])],
        Repair(text="Let the optimizer's step write to the parameters that the model uses.", kind="wiring"),
    )


def _without_gradient(evidence: Evidence, row: Row, choice: ExperimentChoice, pattern: str) -> Proposal:
    """The steps come where no gradient is: they find one where they wait for the next backward."""
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **movement(evidence, pattern)}
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "step_before_backward",
                "The step comes where no gradient is, before backward or after it was cleared: one that waits for the "
                "next backward moves the parameters.",
                lead,
            ),
            Candidate("update_lost", "The step changes nothing, whatever it finds.", nothing(lead)),
        ],
        ["output.first", "loss.first", "gradient.first[*]", "lr.first", "row[DEPENDENCY/reached]"],
        Repair(text="Step after backward, and clear the gradients after the step or before backward.", kind="wiring"),
    )
