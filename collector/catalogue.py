"""The closed catalogue of experiments: what each one changes, and what it cannot change. No torch here.

An advisor never runs code: it picks one entry and fills in typed parameters. What an entry really does to a running
script lives in `interventions/`, one file each; a test holds the two lists equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, ValidationError

from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import Boundary, Model, Value


class ParameterGlob(Model):
    """Shell-style pattern over parameter names, such as `head.*`."""

    parameters: str = Field(default="*", min_length=1, max_length=200)


@dataclass(frozen=True)
class Entry:
    """One experiment.

    `can_move` names the measurements (without their brackets) that the intervention is able to move. A stay-list made
    only of others would hold whatever happens, so the contract refuses it.
    """

    name: str
    boundary: Boundary
    changes: str
    cannot_change: str
    not_applicable: str
    parameters: type[Model]
    can_move: frozenset[str]


OWN_MISSING_PARAMETERS = Entry(
    name="own_missing_parameters",
    boundary="OWNERSHIP",
    changes="Right before the first optimizer step, trainable parameters of the model that match the pattern and that "
    "no optimizer holds are added to it: to the group that holds their replaced namesake, else to its first group.",
    cannot_change="Data, forward, loss and the first backward are already past; nothing is taken out of the optimizer.",
    not_applicable="No matching trainable parameter is missing from the optimizers, or the script never steps one.",
    parameters=ParameterGlob,
    can_move=frozenset({"owned", "moved", "delta.net", "loss.last", "row", "steps"}),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (OWN_MISSING_PARAMETERS,)}


def checked_parameters(name: str, given: dict[str, Value]) -> Model:
    """The typed parameters of an entry.

    Raises:
        InterventionError: No such entry, or a parameter of the wrong name or type; says which are allowed.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise InterventionError(
            f"There is no experiment {name!r}.", about=name, hint=f"choose one of: {', '.join(sorted(CATALOGUE))}."
        )
    try:
        return entry.parameters.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "parameters"
        allowed = ", ".join(entry.parameters.model_fields) or "none"
        raise InterventionError(
            f"{name}: {field}: {first['msg']}.", about=field, hint=f"allowed parameters: {allowed}."
        ) from error
