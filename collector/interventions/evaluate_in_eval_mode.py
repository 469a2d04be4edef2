"""A model is evaluated in eval mode, whatever mode it was left in."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from weaklink.collector.interventions.before_evaluation import BeforeEvaluation

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class EvaluateInEvalMode(BeforeEvaluation):
    """Switched to eval mode before a call without gradients, and back before the next one with them.

    What drops draws random numbers: where something does, the forward is made once before, as it would have been, for
    the training that follows to draw what it drew.
    """

    name = "evaluate_in_eval_mode"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._switched: list[weakref.ref[nn.Module]] = []

    def evaluated(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not module.training:
            return
        if any(_draws(sub) for sub in module.modules()):
            with self._watcher.looking_away(), torch.no_grad():
                module.forward(*args, **kwargs)
        for sub in module.modules():
            if sub.training:
                sub.training = False
                self._switched.append(weakref.ref(sub))
        self.note_changed(self._watcher, type(module).__name__, "evaluated in eval mode")

    def _note_trained(self, module: nn.Module) -> None:
        while self._switched:
            if (sub := self._switched.pop()()) is not None:
                sub.training = True
        super()._note_trained(module)


def _draws(module: nn.Module) -> bool:
    rate = getattr(module, "p", getattr(module, "dropout", 0.0))
    return module.training and isinstance(rate, (int, float)) and rate > 0
