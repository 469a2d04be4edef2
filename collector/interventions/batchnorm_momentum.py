"""Another weight of the new batch in running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import is_traced

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class BatchnormMomentum(Intervention):
    """Set right before each forward of a batch normalisation in train mode, which normalises by its batch anyway.

    One that keeps the plain average over all batches (momentum None) goes on keeping it.
    """

    name = "batchnorm_momentum"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        nn.modules.module.register_module_forward_pre_hook(self._begins)

    def _begins(self, module: nn.Module, args: Any) -> None:
        if not isinstance(module, nn.modules.batchnorm._BatchNorm) or not module.training or is_traced():
            return
        wanted = float(str(self.parameters["momentum"]))
        if module.momentum is None or module.running_mean is None or module.momentum == wanted:
            return
        if not self._watcher.paused:
            self.note_changed(self._watcher, type(module).__name__, f"momentum {module.momentum!r} -> {wanted!r}")
        module.momentum = wanted
