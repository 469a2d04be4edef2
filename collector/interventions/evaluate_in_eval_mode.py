"""A model is evaluated in eval mode, whatever mode it was left in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from weaklink.collector.interventions.before_evaluation import BeforeEvaluation


class EvaluateInEvalMode(BeforeEvaluation):
    """In eval mode for as long as a call without gradients takes.

    What drops draws random numbers: where something does, the forward is made once before, as it would have been, for
    the training that follows to draw what it drew.
    """

    name = "evaluate_in_eval_mode"

    def evaluated(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        training = [sub for sub in module.modules() if sub.training]
        if not module.training:
            return None
        if any(_draws(sub) for sub in training):
            with self._watcher.looking_away(), torch.no_grad():
                _draw(module, args, kwargs)
        for sub in training:
            sub.training = False
        self.note_changed(self._watcher, type(module).__name__, "evaluated in eval mode")
        return lambda: _train(training)


def _draw(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Make the forward for what it draws alone: no running statistics are kept of it."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    module(*args, **kwargs)
    for buffer, value in before:
        buffer.copy_(value)


def _train(modules: list[nn.Module]) -> None:
    for module in modules:
        module.training = True


def _draws(module: nn.Module) -> bool:
    rate = getattr(module, "p", getattr(module, "dropout", 0.0))
    return isinstance(rate, (int, float)) and rate > 0
