"""What each experiment of the catalogue does to a running script: one file each, attached to the watcher's events."""

from __future__ import annotations

from weaklink.collector.catalogue import checked_parameters
from weaklink.collector.evidence import Value
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.own_missing_parameters import OwnMissingParameters
from weaklink.collector.interventions.placebo import Placebo

_KINDS: dict[str, type[Intervention]] = {"own_missing_parameters": OwnMissingParameters}


def build(name: str, parameters: dict[str, Value]) -> Intervention:
    """The intervention of that name, its parameters checked.

    Raises:
        InterventionError: Unknown name, or parameters of the wrong name or type.
    """
    if name == Placebo.name:
        return Placebo({})
    checked = checked_parameters(name, parameters)
    return _KINDS[name](checked.model_dump())
