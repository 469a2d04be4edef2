"""The page for GRADIENT/nonzero: a module behind which every gradient is exactly zero."""

from __future__ import annotations

import glob

from weaklink.agent.advisors.page import (
    PASSES,
    Candidate,
    Expected,
    experiment,
    listed,
    model_parameters,
    movement,
    nothing,
    over,
    received,
)
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, ParameterRecord, Row


def dead_module(evidence: Evidence, row: Row) -> Proposal | None:
    """Draw the dead module's weights anew. None where no whole module is dead, or other weights would mend nothing.

    A gradient that ends at a factor of zero, or that cancels, ends there whatever the weights are.
    """
    if not set(listed(row, "ends_at")) <= {"limit"}:
        return None
    module = _dead(evidence, row)
    if not module:
        return None
    pattern = glob.escape(module) + ".*"
    own = [record.name for record in model_parameters(evidence) if _module(record) == module]
    others = [record.name for record in model_parameters(evidence) if record.name not in own]
    lead: dict[str, Expected] = {
        f"row[{row.id}]": PASSES,
        "loss.first": "different",
        **movement(evidence, pattern),
        "loss.last": "down",
    }
    return experiment(
        evidence,
        row,
        ExperimentChoice(
            name="reinitialize", parameters={"module": glob.escape(module), "scheme": "default", "seed": 0}
        ),
        [
            Candidate(
                "zero_gradient",
                f"The units of {module} are dead or saturated: with these weights no input lets a gradient through.",
                lead,
            ),
            Candidate(
                "signal_vanishes",
                f"A factor of zero stands behind {module}: whatever its weights are, nothing depends on them.",
                nothing(lead),
            ),
            Candidate(
                "other",
                f"{module} is not what keeps the loss up: with other weights it learns, and the loss ends no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        ["input.first", *over(evidence, "parameters.first", others), "owned[*]", "lr.first"],
        Repair(text=f"Start {module} with weights for which its units respond to the inputs.", kind="wiring"),
    )


def _dead(evidence: Evidence, row: Row) -> str | None:
    """The last module, in the order of the parameters, all of whose gradients are zero.

    Everything in front of a dead module has a gradient of zero too. So have the weights right behind it, which are fed
    zeros; but not their bias. Hence a module with a bias is taken first.
    """
    modules: dict[str, list[ParameterRecord]] = {}
    for record in model_parameters(evidence):
        if received(record):
            modules.setdefault(_module(record), []).append(record)
    zero = set(listed(row, "zero"))
    dead = {name: own for name, own in modules.items() if name and all(r.always_zero or r.name in zero for r in own)}
    with_bias = [name for name, own in dead.items() if any(record.name.endswith("bias") for record in own)]
    return next(reversed(with_bias or list(dead)), None)


def _module(record: ParameterRecord) -> str:
    return record.name.rpartition(".")[0]
