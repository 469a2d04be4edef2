"""A step where the script takes none: what backward leaves is used, and cleared."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import inside_a_step, unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class StepAfterBackward(Intervention):
    """After every n-th backward each optimizer that has a gradient steps, through the scaler where one scaled the loss.

    Its gradients are cleared then. A step of the script's own finds none, until the next backward.
    """

    name = "step_after_backward"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._every = int(str(self.parameters["n"]))
        self._backwards = self._depth = 0
        self._scaler: weakref.ref[Any] | None = None
        watcher.wrap(GradScaler, "scale", self._scale)
        # Outside of all that watches a backward: for them the step comes after it.
        watcher.when_installed.append(lambda: replace(torch.autograd, ("backward",), self._backward))

    @unseen_by_warnings
    def _scale(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        self._scaler = weakref.ref(scaler) if scaler.is_enabled() else None
        return original(scaler, *args, **kwargs)

    @unseen_by_warnings
    def _backward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            self._depth -= 1
        # Not within another backward (checkpointing), nor in the closure of a step, nor in a look of ours.
        if self._depth or inside_a_step() or self._watcher.paused:
            return result
        self._backwards += 1
        if self._backwards % self._every == 0:
            self._step()
        return result

    def _step(self) -> None:
        ready = [optimizer for _, optimizer in self._watcher.optimizers.alive() if _has_gradient(optimizer)]
        scaler = self._scaler() if self._scaler is not None else None
        for optimizer in ready:
            name = type(optimizer).__name__
            self.note_changed(self._watcher, name, f"{name} stepped after a backward")
            if scaler is not None:
                scaler.step(optimizer)
            else:
                optimizer.step()
            optimizer.zero_grad()
        if ready and scaler is not None:
            scaler.update()


def _has_gradient(optimizer: Optimizer) -> bool:
    held = (tensor for group in optimizer.param_groups for tensor in group["params"])
    return any(isinstance(tensor, Tensor) and tensor.grad is not None for tensor in held)
