"""The page for DEPENDENCY/reached: a detach stands between the loss and parameters that an optimizer steps."""

from __future__ import annotations

from weaklink.agent.advisors.page import (
    PASSES,
    Candidate,
    Expected,
    experiment,
    listed,
    model_parameters,
    movement,
    over,
    received,
)
from weaklink.agent.patterns import exact_pattern
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, ParameterRecord, Row


def cut_path(evidence: Evidence, row: Row) -> Proposal | None:
    """Let the gradient through the one detach that cuts the path. None without a single such site.

    With several sites, mending one of them says nothing: the row would stay although each of them is a cut.
    """
    sites = listed(row, "cut")
    missed = [record for record in model_parameters(evidence) if _missed(record, row)]
    others = [record.name for record in model_parameters(evidence) if received(record)]
    pattern = exact_pattern([record.name for record in missed], others)
    if len(sites) != 1 or not missed or pattern is None:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **movement(evidence, pattern), "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="reattach", parameters={"site": sites[0]}),
        [
            Candidate("graph_cut", f"The detach at {sites[0]} cuts the path from the loss to {pattern}.", lead),
            _carries_nothing(missed, lead),
            Candidate(
                "other",
                "The gradient is stopped there on purpose: let through, it moves these parameters, and the loss ends "
                "no lower.",
                lead | {"loss.last": "up"},
            ),
        ],
        ["output.first", "loss.first", *_gradients_after(evidence, missed), "owned[*]"],
        Repair(text=f"Take the detach at {sites[0]} out of the path to {pattern}.", kind="wiring"),
    )


def _missed(record: ParameterRecord, row: Row) -> bool:
    # The row names only the first ones.
    named = record.name in listed(row, "missed")
    return named or (record.requires_grad and record.reached is False and not received(record))


def _carries_nothing(missed: list[ParameterRecord], lead: dict[str, Expected]) -> Candidate:
    stays: dict[str, Expected] = {key: expected if key.startswith("row[") else "same" for key, expected in lead.items()}
    if not any(record.owned for record in missed):
        text = "Even reached by the loss these parameters would not move: no optimizer holds them."
        return Candidate("not_in_optimizer", text, stays)
    text = "Even joined again the path carries nothing: the gradient that comes over it is exactly zero."
    return Candidate("zero_gradient", text, stays)


def _gradients_after(evidence: Evidence, missed: list[ParameterRecord]) -> list[str]:
    """First gradients of what comes after the last missed parameter.

    One before it may feed the path that was cut, and then gains a gradient by right.
    """
    model = model_parameters(evidence)
    last = max(number for number, record in enumerate(model) if record in missed)
    return over(evidence, "gradient.first", [record.name for record in model[last + 1 :] if received(record)])
