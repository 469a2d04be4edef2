"""Train or eval mode for the forwards that are trained on: the one change that tells a forgotten mode apart."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from weaklink.collector.interventions.forwards import AroundForward
from weaklink.collector.watching.context import mode_matters


class SetMode(AroundForward):
    """Modules are in that mode for as long as a forward with gradients takes, and then again in the one they had.

    Only models of which an optimizer holds something: a teacher or a frozen critic keeps the mode that it was given.
    What the script reads of `module.training` between its calls is its own.
    """

    name = "set_mode"

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not torch.is_grad_enabled() or self._watcher.paused or not self._is_trained(module):
            return call(*args, **kwargs)
        wanted = self.parameters["mode"] == "train"
        pattern = str(self.parameters["modules"])
        others = [
            (name, sub)
            for name, sub in module.named_modules()
            if sub.training is not wanted and fnmatchcase(name, pattern)
        ]
        for name, sub in others:
            sub.training = wanted
            if mode_matters(sub):
                self.note_changed(self._watcher, name or type(sub).__name__, f"{self.parameters['mode']} mode")
        try:
            return call(*args, **kwargs)
        finally:
            for _, sub in others:
                sub.training = not wanted

    def _is_trained(self, module: nn.Module) -> bool:
        """Whether an optimizer holds one of its parameters; yes as long as there is no optimizer at all."""
        optimizers = [optimizer for _, optimizer in self._watcher.optimizers.alive()]
        own = {id(parameter) for parameter in module.parameters()}
        held = (id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"])
        return not optimizers or any(one in own for one in held)
