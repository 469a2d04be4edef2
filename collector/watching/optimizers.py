"""Optimizers by identity: where they were built, and every parameter they ever held."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.watching.parameters import ParameterBook


@dataclass
class OptimizerEntry:
    """One optimizer object. Ownership stays on record after the object itself was collected."""

    serial: int
    ref: weakref.ref[Optimizer]
    class_name: str
    built: Site | None
    order: int
    held: list[int] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    steps: int = 0
    # A schedule holds the rate at zero now: it was built with another one.
    held_at_zero: bool = False


class OptimizerBook:
    """All optimizers of the run."""

    def __init__(self, parameters: ParameterBook) -> None:
        self.entries: list[OptimizerEntry] = []
        self._by_id: dict[int, OptimizerEntry] = {}
        self._parameters = parameters

    def entry(self, optimizer: Optimizer, built: Site | None, order: int) -> tuple[OptimizerEntry, bool]:
        """The entry of this object, and whether it is new."""
        known = self._by_id.get(id(optimizer))
        if known is not None and known.ref() is optimizer:
            return known, False
        made = OptimizerEntry(len(self.entries), weakref.ref(optimizer), type(optimizer).__name__, built, order)
        self.entries.append(made)
        self._by_id[id(optimizer)] = made
        return made, True

    def read_groups(self, entry: OptimizerEntry, groups: list[dict[str, Any]]) -> None:
        """Take over which parameters the groups hold now, in both directions."""
        entry.held = []
        entry.groups = []
        entry.held_at_zero = any(rate(group) == 0.0 < _initial_rate(group) for group in groups)
        for number, group in enumerate(groups):
            tensors = [tensor for tensor in group.get("params", []) if isinstance(tensor, Tensor)]
            entry.groups.append(
                f"{len(tensors)} tensors, lr {rate(group):g}, weight decay {float(group.get('weight_decay') or 0.0):g}"
                + (", maximizes" if group.get("maximize") else "")
            )
            for tensor in tensors:
                parameter = self._parameters.entry(tensor)
                entry.held.append(parameter.serial)
                label = f"{entry.class_name}#{entry.serial}[{number}]"
                if entry.serial not in parameter.owners:
                    parameter.owners.append(entry.serial)
                    parameter.places_at_optimizer |= self._parameters.places(parameter.serial)
                if label not in parameter.groups:
                    parameter.groups.append(label)

    def alive(self) -> list[tuple[OptimizerEntry, Optimizer]]:
        return [(entry, optimizer) for entry in self.entries if (optimizer := entry.ref()) is not None]


def _initial_rate(group: dict[str, Any]) -> float:
    """What torch's schedulers note down when they are built; zero without one."""
    return rate({"lr": group.get("initial_lr", 0.0)})


def rate(group: dict[str, Any]) -> float:
    """The learning rate of a group; NaN where it has none (a custom optimizer)."""
    try:
        return float(group.get("lr", float("nan")))
    except (TypeError, ValueError):
        return float("nan")
