"""The closed catalogue of experiments: what each one changes, and what it cannot change. No torch here.

An advisor never runs code: it picks one entry and fills in typed parameters. What an entry really does to a running
script lives in `interventions/`, one file each; a test holds the two lists equal. One file here a boundary.
"""

from __future__ import annotations

from pydantic import ValidationError

from weaklink.collector.catalogue import (
    capability,
    dependency,
    evaluation,
    gradient,
    objective,
    ownership,
    task,
    update,
)
from weaklink.collector.catalogue.entry import Entry, NoParameters, ParameterGlob
from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import Model, Value

__all__ = ["CATALOGUE", "Entry", "NoParameters", "ParameterGlob", "checked_parameters"]

CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for boundary in (task, objective, dependency, gradient, ownership, update, capability, evaluation)
    for entry in boundary.ENTRIES
}


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
