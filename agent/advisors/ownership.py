"""The page for OWNERSHIP/owned: learning parameters that no optimizer holds."""

from __future__ import annotations

from weaklink.agent.advisors.base import cite
from weaklink.agent.measurements import matching, take
from weaklink.agent.patterns import common_pattern, exact_pattern, part_by_part
from weaklink.agent.proposal import (
    Direction,
    ExperimentChoice,
    Mechanism,
    MechanismFamily,
    Prediction,
    Proposal,
    Repair,
)
from weaklink.collector.evidence import Evidence, Row

_EXPLANATIONS: dict[MechanismFamily, str] = {
    "optimizer_holds_old_objects": (
        "The optimizer was built first; then {names} took the place of what it holds. It steps the old objects, and "
        "the ones that the loss reaches never move."
    ),
    "not_in_optimizer": ("{names}: never given to the optimizer. No step moves what the optimizer does not hold."),
    "rate_wrong": (
        "The parameters would not move even if the optimizer held them: its learning rate is zero, or its step changes "
        "nothing."
    ),
    "frozen_by_accident": (
        "Ownership is not what keeps the loss: these parameters would move, but the frozen part of the model decides "
        "the loss, which would stay where it is."
    ),
}


def missing_parameters(evidence: Evidence, row: Row) -> Proposal | None:
    """Own what is missing; nothing else changes. None where the run offers too little.

    Where it may have been left out on purpose (suspected), the row itself must pass, and the loss take another way.
    """
    names = [record.name for record in evidence.parameters if _missing(record.name, row)]
    held = [record.name for record in evidence.parameters if record.in_model and record.owned]
    pattern = common_pattern(names) if row.status == "fail" else part_by_part(names, held) or common_pattern(names)
    if not names or not matching(evidence, pattern):
        return None
    lead: MechanismFamily = "optimizer_holds_old_objects" if _replaced(evidence) else "not_in_optimizer"
    rivals: list[MechanismFamily] = ["rate_wrong"]
    if any(not record.requires_grad for record in evidence.parameters if record.in_model):
        rivals.append("frozen_by_accident")
    changes = [key for key in _changes(pattern, row, evidence) if take(evidence, key).taken]
    stays = [key for key in _stays(evidence, pattern) if take(evidence, key).taken]
    shown = _named(names)
    return Proposal(
        outcome="experiment",
        first_boundary=row.boundary,
        first_row=row.id,
        cited=cite(row),
        mechanisms=[
            Mechanism(
                id=family,
                boundary=_BOUNDARIES[family],
                explanation=_EXPLANATIONS[family].format(names=shown),
                predictions=[_prediction(family, key, row) for key in changes]
                + [Prediction(measurement=key, expect="same") for key in stays],
            )
            for family in (lead, *rivals)
        ],
        experiment=ExperimentChoice(name="own_missing_parameters", parameters={"parameters": pattern}),
        must_change=changes,
        must_stay_unchanged=stays,
        # Whether they were left out on purpose no rerun can tell.
        question=f"Are {shown} meant to be trained?" if row.status == "suspected" else None,
        repair=Repair(text=_REPAIR[lead].format(names=shown), kind="wiring"),
    )


_BOUNDARIES: dict[MechanismFamily, str] = {
    "optimizer_holds_old_objects": "OWNERSHIP",
    "not_in_optimizer": "OWNERSHIP",
    "rate_wrong": "UPDATE",
    "frozen_by_accident": "DEPENDENCY",
}
_REPAIR: dict[MechanismFamily, str] = {
    "optimizer_holds_old_objects": (
        "Build the optimizer after {names} are in place, or give them to it with add_param_group."
    ),
    "not_in_optimizer": "Give {names} to the optimizer: build it afterwards, or call add_param_group.",
}


def _missing(name: str, row: Row) -> bool:
    missing = row.values.get("missing")
    return isinstance(missing, list) and name in missing


def _replaced(evidence: Evidence) -> bool:
    stale = evidence.row("OWNERSHIP/stale")
    return stale is not None and bool(stale.values.get("replaced"))


def _named(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:4]) + (f" and {len(unique) - 4} more" if len(unique) > 4 else "")


def _changes(pattern: str, row: Row, evidence: Evidence) -> list[str]:
    if row.status == "suspected":
        return [f"row[{row.id}]", f"moved[{pattern}]", "loss.last"]
    # A row that does not fail now has no flip to predict.
    moved = [key for key in ("row[UPDATE/moved]",) if take(evidence, key).value in ("fail", "suspected")]
    return [f"moved[{pattern}]", *moved, f"delta.net[{pattern}]", "loss.last"]


def _stays(evidence: Evidence, pattern: str) -> list[str]:
    """What happens before the first step, and what the intervention could move but must not."""
    model = [record for record in evidence.parameters if record.in_model]
    frozen = [record.name for record in model if not record.requires_grad]
    trainable = [record.name for record in model if record.requires_grad]
    still = exact_pattern(frozen, trainable) if frozen else None
    keys = ["output.first", "loss.first", f"gradient.first[{pattern}]"]
    return [*keys, f"delta.net[{still}]"] if still else [*keys, "steps"]


def _prediction(family: MechanismFamily, key: str, row: Row) -> Prediction:
    """What this mechanism makes of that measurement once the missing parameters are owned."""
    if key == f"row[{row.id}]":
        return Prediction(measurement=key, expect="becomes", value="pass")
    if family == "rate_wrong" or (family == "frozen_by_accident" and key == "loss.last"):
        return Prediction(measurement=key, expect="same")
    expect: Direction = "up"
    if key == "loss.last":
        expect = "down" if row.status == "fail" else "different"
    if key.startswith("row["):
        # Not "becomes pass": a parameter that happens to get no gradient keeps the row from that.
        expect = "different"
    return Prediction(measurement=key, expect=expect)
