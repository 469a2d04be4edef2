"""The page for UPDATE/pending: a step changed what a backward still needed, and the backward raised."""

from __future__ import annotations

from weaklink.agent.advisors.page import (
    PASSES,
    Becomes,
    Candidate,
    Expected,
    experiment,
    model_parameters,
    movement,
    nothing,
    over,
    received,
)
from weaklink.agent.patterns import exact_pattern
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row


def early_step(evidence: Evidence, row: Row) -> Proposal | None:
    """Let the step wait for the backward. None where no line of the user's asks for the step."""
    step_at, backward_at = row.values.get("step_at"), row.values.get("backward_at")
    if not isinstance(step_at, str) or not isinstance(backward_at, str):
        return None
    model = model_parameters(evidence)
    still = [record.name for record in model if record.moved is False]
    pattern = exact_pattern(still, [record.name for record in model if record.name not in still]) if still else None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "steps": "up"}
    lead |= movement(evidence, pattern) if pattern is not None else {}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="defer_step_until_backward", parameters={"site": step_at}),
        [
            Candidate(
                "step_before_backward",
                f"The step at {step_at} changes parameters that the backward at {backward_at} still needs as they "
                "were. Taken after that backward it changes nothing that anybody waits for.",
                lead,
            ),
            Candidate(
                "other",
                f"What the backward at {backward_at} misses is changed by something else than this step: it raises "
                "however long the step waits, which is then never taken.",
                nothing(lead) | {f"row[{row.id}]": Becomes("evidence"), "steps": "down"},
            ),
        ],
        [
            "output.first",
            "loss.first",
            *over(evidence, "gradient.first", [record.name for record in model if received(record)]),
            *over(evidence, "moved", [record.name for record in model if record.moved]),
        ],
        Repair(
            text=f"Step after the backward at {backward_at}. Then look at whose gradients that step takes: a backward "
            "in between may have added its own.",
            kind="wiring",
        ),
    )
