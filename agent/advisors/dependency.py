"""Pages for DEPENDENCY: what the loss does not reach, a term that trains nothing, a target that was to be fixed."""

from __future__ import annotations

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
from weaklink.agent.measurements import take
from weaklink.agent.patterns import exact_pattern
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, ParameterRecord, Row

# What the line does at which a history ends, and how it is mended, by the kind that rows name.
_CUTS = {
    "detach": ("The detach at {site} cuts", "Take the detach at {site} out of {what}."),
    "copy": ("A copy of the values at {site} cuts", "Pass the tensors themselves on at {site}: {what} needs them."),
    "no_grad": ("Gradients are switched off at {site}, which cuts", "Leave gradients on at {site} for {what}."),
    "checkpoint": (
        "The re-entrant checkpoint at {site} is given nothing that needs a gradient, which cuts",
        "Call checkpoint with use_reentrant=False at {site}, for {what}.",
    ),
}


def cut_path(evidence: Evidence, row: Row) -> Proposal | None:
    """Let the gradient through at the one line that cuts the path. None without a single such line.

    With several of them, mending one says nothing: the row would stay although each is a cut.
    """
    ends = listed(row, "ends") or [f"detach {site}" for site in listed(row, "cut")]
    missed = [record for record in model_parameters(evidence) if _missed(record, row)]
    others = [record.name for record in model_parameters(evidence) if received(record)]
    pattern = exact_pattern([record.name for record in missed], others)
    if len(ends) != 1 or not missed or pattern is None:
        return None
    kind, _, site = ends[0].partition(" ")
    at: dict[str, str | int | float | bool | None] = {"site": site}
    choices = {
        "detach": ExperimentChoice(name="reattach", parameters={**at}),
        "copy": ExperimentChoice(name="reattach", parameters={**at}),
        "no_grad": ExperimentChoice(name="grad_enabled", parameters={**at}),
        "checkpoint": ExperimentChoice(name="non_reentrant_checkpoint", parameters={}),
    }
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **movement(evidence, pattern)}
    if not _several_objectives(evidence):
        lead["loss.last"] = "down"
    cause, repair = (text.format(site=site, what=f"the path to {pattern}") for text in _CUTS[kind])
    return experiment(
        evidence,
        row,
        choices[kind],
        [
            Candidate("graph_cut", f"{cause} the path from the loss to {pattern}.", lead),
            _carries_nothing(missed, lead),
            _cut_on_purpose(lead),
        ],
        ["output.first", "loss.first", *_gradients_after(evidence, missed), "owned[*]"],
        Repair(text=repair, kind="wiring"),
    )


def _several_objectives(evidence: Evidence) -> bool:
    """Whether the recorded losses are of more than one: their mean says nothing about any of them then."""
    groups = evidence.row("OWNERSHIP/groups")
    optimizers = groups.values.get("optimizers") if groups is not None else None
    return isinstance(optimizers, int) and optimizers > 1


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


def _cut_on_purpose(lead: dict[str, Expected]) -> Candidate:
    if "loss.last" in lead:
        text = (
            "The gradient is stopped there on purpose: let through, it moves these parameters, and the loss ends no "
            "lower."
        )
        return Candidate("other", text, lead | {"loss.last": "up"})
    text = "The path ends elsewhere as well: let through at this line, the gradient still does not reach them."
    return Candidate("other", text, nothing(lead))


def _gradients_after(evidence: Evidence, missed: list[ParameterRecord]) -> list[str]:
    """First gradients of what comes after the last missed parameter; the number of steps where none was measured.

    One before it may feed the path that was cut, and then gains a gradient by right.
    """
    model = model_parameters(evidence)
    last = max(number for number, record in enumerate(model) if record in missed)
    keys = over(evidence, "gradient.first", [record.name for record in model[last + 1 :] if received(record)])
    return [key for key in keys if take(evidence, key).taken] or ["steps"]


def lost_term(evidence: Evidence, row: Row) -> Proposal | None:
    """Give a term of the loss its history back. None where the kind of its cut is not known."""
    kind, site = row.values.get("kind"), row.where[0].place if row.where else ""
    choices = {
        "detach": ExperimentChoice(name="reattach", parameters={"site": site}),
        "copy": ExperimentChoice(name="reattach", parameters={"site": site}),
        "no_grad": ExperimentChoice(name="grad_enabled", parameters={"site": site}),
        "checkpoint": ExperimentChoice(name="non_reentrant_checkpoint", parameters={}),
    }
    if not isinstance(kind, str) or kind not in choices or not site:
        return None
    lead: dict[str, Expected] = {
        f"row[{row.id}]": PASSES,
        "gradient.first[*]": "different",
        "delta.net[*]": "different",
    }
    nowhere: dict[str, Expected] = {**nothing(lead), f"row[{row.id}]": PASSES}
    cause, repair = (text.format(site=site, what="the term") for text in _CUTS[kind])
    return experiment(
        evidence,
        row,
        choices[kind],
        [
            Candidate("graph_cut", f"{cause} this term of the loss off from the parameters it is made of.", lead),
            Candidate(
                "zero_gradient", "With its history the term trains nothing either: its gradient is zero.", nowhere
            ),
            Candidate("other", "The term's history ends elsewhere as well, and is not given back here.", nothing(lead)),
        ],
        ["output.first", "loss.first", "owned[*]", "steps"],
        Repair(text=repair, kind="wiring"),
    )


def trained_target(evidence: Evidence, row: Row) -> Proposal | None:
    """Fix one side of the similarity that the loss raises. None where its line is not known."""
    if not row.where:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "gradient.first[*]": "different", "loss.last": "up"}
    elsewhere: dict[str, Expected] = {f"row[{row.id}]": PASSES, "gradient.first[*]": "different", "loss.last": "same"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="stop_gradient", parameters={"site": row.where[0].place}),
        [
            Candidate(
                "missing_stop_gradient",
                "Both sides of the similarity are trained, and meet in one constant output. With one of them fixed the "
                "loss no longer falls as far.",
                lead,
            ),
            Candidate("other", "The outputs are alike because the inputs are, whichever side is trained.", elsewhere),
        ],
        ["output.first", "loss.first", "owned[*]", "steps"],
        Repair(text=f"Detach the side of the similarity at {row.where[0].place} that is the target.", kind="wiring"),
    )


def frozen(evidence: Evidence, row: Row) -> Proposal | None:
    """Unfreeze what was declared to be trained. None where its names have no pattern of their own."""
    asleep = listed(row, "frozen")
    pattern = exact_pattern(asleep, [r.name for r in model_parameters(evidence) if r.name not in asleep])
    if not asleep or pattern is None:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, **movement(evidence, pattern)}
    at_rest: dict[str, Expected] = {**nothing(lead), f"row[{row.id}]": PASSES}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="unfreeze", parameters={"parameters": pattern}),
        [
            Candidate("frozen_by_accident", f"The requires_grad of {pattern} is off; nothing else is wrong.", lead),
            Candidate("graph_cut", "Also where they require a gradient the loss does not reach them.", at_rest),
            Candidate("zero_gradient", "Also where they require a gradient theirs is exactly zero.", at_rest),
        ],
        ["output.first", "loss.first", "steps"],
        Repair(text=f"Set requires_grad to True for {pattern} where they are made.", kind="wiring"),
    )
