"""Clip the gradients right before each step: the last moment at which it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import utils
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import inside_another_step, unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class ClipGradNorm(Intervention):
    """What a step consumes has a norm of at most the limit, over all parameters of its optimizer together.

    A closure makes the gradients inside the step: they are clipped whenever it was evaluated.
    """

    name = "clip_grad_norm"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._limit = float(str(self.parameters["max"]))
        # A hook of torch's own: it may give the step another closure. Registered before the watcher's.
        register_optimizer_step_pre_hook(self._before)

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._watcher.paused or inside_another_step():
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            self._clip(optimizer)
            return None
        clipping = self._clipping(optimizer, closure)
        return ((args[0], clipping, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": clipping})

    def _clipping(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        @unseen_by_warnings
        def evaluate() -> Any:
            result = closure()
            self._clip(optimizer)
            return result

        return evaluate

    def _clip(self, optimizer: Optimizer) -> None:
        held = [tensor for group in optimizer.param_groups for tensor in group["params"] if isinstance(tensor, Tensor)]
        norm = utils.clip_grad_norm_(held, self._limit)
        if not self.report.applied and bool(torch.isfinite(norm)) and float(norm) > self._limit:
            self.note_changed(self._watcher, type(optimizer).__name__, f"clipped to a norm of {self._limit:g}")
