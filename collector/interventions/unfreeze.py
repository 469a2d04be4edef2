"""Let frozen parameters be trained: the one change that tells what was frozen by accident from what rests by right."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.own_missing_parameters import OwnMissingParameters

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Unfreeze(Intervention):
    """Before each forward of a model its matching parameters require a gradient; optimizers come to hold them."""

    name = "unfreeze"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._after = int(str(self.parameters["after"]))
        self._owning = OwnMissingParameters({"parameters": self.parameters["parameters"], "unregistered": False})
        self._owning.attach(watcher)
        watcher.at_first_forward.append(self._unfreeze)
        watcher.before_step.append(self._tell_of_owning)

    def _unfreeze(self, root: nn.Module) -> bool:
        """Never done: the script may freeze them again, and a second model may still come."""
        entry = self._watcher.roots.entry(root)
        if entry is None or self._watcher.tape.steps < self._after:
            return False
        frozen = [(name, p) for name, p in root.named_parameters() if not p.requires_grad and p.is_floating_point()]
        if not frozen:
            return False
        prefix = self._watcher.roots.prefixes().get(entry.serial, "")
        pattern = str(self.parameters["parameters"])
        for name, parameter in frozen:
            # As long as only one model has run its names have no prefix; they get one as soon as there is a second.
            if any(fnmatchcase(each + name, pattern) for each in dict.fromkeys((prefix, f"{entry.class_name}."))):
                parameter.requires_grad = True  # not `requires_grad_`, which is watched as the script's own
                self.note_changed(self._watcher, prefix + name, "a frozen parameter was made trainable")
        return False

    def _tell_of_owning(self, optimizer: Optimizer) -> None:
        if self.report.applied and self._owning.report.applied and self._owning.report.detail not in self.report.detail:
            self.report.detail += f"; {self._owning.report.detail}"
