"""The page for GRADIENT/nonzero: modules behind which every gradient is exactly zero."""

from __future__ import annotations

import glob
from typing import get_args

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
from weaklink.agent.patterns import part_by_part
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.catalogue.gradient import Function
from weaklink.collector.evidence import Evidence, ParameterRecord, Row, Value

# As a graph calls what the catalogue calls otherwise.
_FUNCTIONS = {"clampmin": "clamp", "clampmax": "clamp", "logsoftmax": "log_softmax"}

# Their derivative is zero wherever it exists: no other weights would be any better off.
_STEPS = ("round", "floor", "ceil", "sign")


def vanished_gradient(evidence: Evidence, row: Row) -> Proposal | None:
    """Other first weights, or the operation at which the gradient ends left out or cut, by what the row says of it.

    None where nothing is known of the end, or it is a factor of zero: no weights, and no operation, are to blame.
    """
    ends, waiting = set(listed(row, "ends_at")), listed(row, "waiting")
    if waiting:
        others = [record.name for record in model_parameters(evidence) if record.name not in waiting]
        pattern = part_by_part(waiting, others)
        choice = ExperimentChoice(
            name="reinitialize", parameters={"module": pattern or "", "scheme": "kaiming_uniform", "seed": 0}
        )
        return _zeros_that_wait(evidence, row, choice, pattern) if pattern is not None else None
    operation = _operation(row)
    if ends == {"cancelled"} and operation is not None:
        return _cancelling(evidence, row, ExperimentChoice(name="at_site", parameters=operation | {"change": "cut"}))
    # Units that answer zero everywhere take the gradient of the weights behind them too: a product with zero.
    if not ends <= {"limit", "product"} or ends == {"product"}:
        return None
    module = _dead(evidence, row)
    output = _everything(evidence, row) and "product" not in ends
    steps = operation is not None and operation["function"] in _STEPS
    if operation is not None and (not module or output or steps or row.values.get("since")):
        choice = ExperimentChoice(name="at_site", parameters=operation | {"change": "bypass"})
        return _beyond_the_limit(evidence, row, choice)
    if not module:
        return None
    chosen: dict[str, Value] = {"module": glob.escape(module), "scheme": "default", "seed": 0}
    return _dead_module(evidence, row, ExperimentChoice(name="reinitialize", parameters=chosen), module)


def _dead_module(evidence: Evidence, row: Row, choice: ExperimentChoice, module: str) -> Proposal:
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
        choice,
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


def _zeros_that_wait(evidence: Evidence, row: Row, choice: ExperimentChoice, pattern: str) -> Proposal:
    """What they compute stays zero, since the last factor of each product still is."""
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **movement(evidence, pattern), "loss.last": "down"}
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "zero_gradient",
                "Factors of one product are all exactly zero, so that none of them gets a gradient. With other values "
                f"in {pattern} all of them learn.",
                lead,
            ),
            Candidate(
                "signal_vanishes",
                f"What arrives behind these factors is zero as well: whatever is in {pattern}, nothing gets there.",
                nothing(lead),
            ),
            Candidate(
                "other",
                "They are not what keeps the loss up: with other values they learn, and the loss ends no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        ["input.first", "output.first", "loss.first", "owned[*]", "lr.first"],
        Repair(text=f"Start {pattern} with values other than zero.", kind="wiring"),
    )


def _beyond_the_limit(evidence: Evidence, row: Row, choice: ExperimentChoice) -> Proposal:
    function, site = choice.parameters["function"], choice.parameters["site"]
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "down"}
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "zero_gradient",
                f"The values that reach {function} at {site} all lie where its derivative is zero. Left out there, it "
                "lets the gradient through.",
                lead,
            ),
            Candidate(
                "signal_vanishes",
                f"The gradient is lost behind {function} at {site} as well: without it nothing arrives either.",
                nothing(lead),
            ),
            Candidate(
                "other",
                f"{function} at {site} is not what keeps the loss up: without it a gradient arrives, and the loss ends "
                "no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        ["input.first", "parameters.first[*]", "owned[*]", "steps"],
        Repair(
            text=f"Keep the values that reach {function} at {site} out of its limit, or leave it out.", kind="wiring"
        ),
    )


def _cancelling(evidence: Evidence, row: Row, choice: ExperimentChoice) -> Proposal:
    function, site = choice.parameters["function"], choice.parameters["site"]
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "different"}
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "zero_gradient",
                f"Both operands of {function} at {site} are computed from the same parameters, once with each sign. "
                "With the second one taken for a constant, a gradient arrives.",
                lead,
            ),
            Candidate(
                "signal_vanishes",
                f"The gradient is zero before it comes to {function} at {site}: one operand alone gets none either.",
                nothing(lead),
            ),
        ],
        ["input.first", "output.first", "loss.first", "parameters.first[*]", "owned[*]", "lr.first"],
        Repair(text=f"Compute the second operand at {site} before, or without gradients.", kind="wiring"),
    )


def _operation(row: Row) -> dict[str, Value] | None:
    """Line and function of the operation at which most of the gradients end; None where the catalogue lacks it."""
    name = str(row.values.get("operation") or "")
    function = _FUNCTIONS.get(name, name)
    cancelled = "cancelled" in listed(row, "ends_at")
    words = "two ways cancel" if cancelled else f"the gradient ends at {name}"
    sites = [site for site in row.where if site.what.lower() == words and site.line is not None]
    if function not in get_args(Function) or not sites:
        return None
    # Where two ways cancel, the line that made the second operand stands before the one at which they meet.
    return {"site": sites[min(len(sites) - 1, 1) if cancelled else 0].place, "function": function}


def _everything(evidence: Evidence, row: Row) -> bool:
    """Whether nothing that the loss reaches receives a gradient: its end lies behind the last layer."""
    zero = set(listed(row, "zero"))
    return all(record.always_zero or record.name in zero for record in model_parameters(evidence) if received(record))


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
