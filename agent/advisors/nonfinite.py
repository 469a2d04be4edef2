"""The page for GRADIENT/finite: the operation that gave the first value or derivative that is not finite."""

from __future__ import annotations

from typing import get_args

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, nothing
from weaklink.agent.measurements import take
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.catalogue.gradient import Ranged
from weaklink.collector.evidence import Evidence, Row

ORIGIN = "GRADIENT/origin"
# What a graph, or an operator, calls otherwise than the catalogue.
_FUNCTIONS = {
    **dict.fromkeys(("truediv", "rtruediv", "itruediv", "divide", "true_divide"), "div"),
    **dict.fromkeys(("ipow", "float_power"), "pow"),
    "logsoftmax": "log_softmax",
    "arccos": "acos",
    "arcsin": "asin",
    "arctanh": "atanh",
}


def singular_operation(evidence: Evidence, row: Row) -> Proposal | None:
    """Keep the argument of that operation where it is finite. None where it was not found, or has no such range."""
    origin = evidence.row(ORIGIN)
    function = _function(origin)
    if origin is None or function is None or not origin.where or origin.where[0].line is None:
        return None
    site = origin.where[0].place
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **_goes_on(evidence)}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="at_site", parameters={"site": site, "function": function, "change": "clamp"}),
        [
            Candidate(
                "nonfinite",
                f"At {site} {function} is given values at which it, or its derivative, is not finite. Kept away from "
                "these, every gradient is finite.",
                lead,
            ),
            Candidate(
                "rate_wrong",
                f"The parameters had grown out of range by then: {function} at {site} is where it first shows, and "
                "without it another operation overflows.",
                nothing(lead),
            ),
        ],
        _before_the_onset(evidence, row),
        Repair(text=f"Keep the argument of {function} at {site} within the range where it is finite.", kind="wiring"),
    )


def _function(origin: Row | None) -> str | None:
    """The catalogue's name of the operation; None where its argument has no range to be kept in."""
    operation = str(origin.values.get("operation", "")) if origin is not None else ""
    name = operation.strip("_").lower().removeprefix("special_")
    name = _FUNCTIONS.get(name, name)
    return name if name in get_args(Ranged) else None


def _goes_on(evidence: Evidence) -> dict[str, Expected]:
    """Steps that were skipped are taken; a loss takes another way than into nothing."""
    skipped = evidence.outcome.steps == 0
    return {"steps": "up", "moved[*]": "up"} if skipped else {"loss.last": "different"}


def _before_the_onset(evidence: Evidence, row: Row) -> list[str]:
    """What the first step has, where it comes before; else that nothing is reached or held otherwise than it was."""
    rows = [f"row[{each}]" for each in ("DEPENDENCY/reached", "OWNERSHIP/owned")]
    first = ["output.first", "loss.first", "gradient.first[*]"]
    early = row.step is None or row.step <= 1
    return [*([] if early else first), *[key for key in rows if take(evidence, key).value == "pass"], "input.first"]
