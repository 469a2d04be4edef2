"""Let the optimizer hold what it does not hold: the one change that separates ownership from everything else."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.parameters import ParameterEntry

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class OwnMissingParameters(Intervention):
    """Right before a step, append missing trainable parameters to a group of the stepping optimizer.

    Appended to an existing group, not added as a new one: a scheduler holds one base rate for each group it was built
    with, and a group more would change what it does.
    """

    name = "own_missing_parameters"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._checked: dict[int, tuple[int, int]] = {}
        watcher.before_step.append(self._own)

    def _own(self, optimizer: Optimizer) -> None:
        # Nothing can newly be missing while nothing was created, no optimizer built, and nothing unfrozen.
        entry, _ = self._watcher.optimizers.entry(optimizer, None, self._watcher.order)
        state = (self._watcher.order, self._watcher.roots.trainable())
        if self._checked.get(entry.serial) == state:
            return
        self._checked[entry.serial] = state
        self._watcher.name_everything()
        alive = [other for other, _ in self._watcher.optimizers.alive()]
        missing = [
            (parameter, tensor) for parameter, tensor in self._missing() if self._belongs(entry, parameter, alive)
        ]
        for parameter, tensor in missing:
            group = self._group_for(optimizer, entry, parameter)
            optimizer.param_groups[group]["params"].append(tensor)
            self.report.changed.append(parameter.name or _made(parameter))
        if missing:
            self.report.applied = True
            first = f"step {self._watcher.tape.steps + 1}"
            self.report.detail = f"{len(self.report.changed)} parameters appended to {entry.class_name} before {first}"
            self._watcher.optimizers.read_groups(entry, optimizer.param_groups)

    def _missing(self) -> list[tuple[ParameterEntry, Tensor]]:
        pattern = str(self.parameters["parameters"])
        held = {serial for entry, _ in self._watcher.optimizers.alive() for serial in entry.held}
        wanted = self._is_loose if self.parameters["unregistered"] else self._is_of_a_model
        return [
            (entry, tensor)
            for entry, tensor in self._watcher.parameters.alive()
            if wanted(entry)
            and tensor.requires_grad
            and tensor.is_leaf
            and entry.serial not in held
            and fnmatchcase(entry.name or "", pattern)
        ]

    def _is_of_a_model(self, entry: ParameterEntry) -> bool:
        return entry.in_model

    def _is_loose(self, entry: ParameterEntry) -> bool:
        """Reached by a loss, made as a parameter, and never part of a model that ran."""
        return bool(entry.reached) and entry.is_parameter and not entry.ever_in_model

    def _belongs(self, entry: OptimizerEntry, parameter: ParameterEntry, all_: list[OptimizerEntry]) -> bool:
        """With several optimizers a parameter goes to the one that holds its replaced namesake, else to the first."""
        for candidate in all_:
            if self._namesake_group(candidate, parameter) is not None:
                return candidate is entry
        # One that never stepped, and does not now, would keep a parameter from the others for good.
        return entry is next(candidate for candidate in all_ if candidate.steps or candidate is entry)

    def _namesake_group(self, entry: OptimizerEntry, parameter: ParameterEntry) -> int | None:
        for serial in entry.held:
            held = self._watcher.parameters.entries[serial]
            if not held.in_model and held.places_at_optimizer & parameter.places:
                return serial
        return None

    def _group_for(self, optimizer: Optimizer, entry: OptimizerEntry, parameter: ParameterEntry) -> int:
        serial = self._namesake_group(entry, parameter)
        if serial is not None:
            stale = self._watcher.parameters.entries[serial].ref()
            for number, group in enumerate(optimizer.param_groups):
                if any(tensor is stale for tensor in group["params"]):
                    return number
        return 0


def _made(parameter: ParameterEntry) -> str:
    """What there is to call a parameter that hangs in no model."""
    return parameter.created.what if parameter.created is not None else "a parameter without a name"
