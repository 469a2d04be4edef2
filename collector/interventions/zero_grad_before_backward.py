"""Clear what a step has used before the next backward adds to it: the one change that tells stale gradients apart."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.amp import GradScaler
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace
from weaklink.collector.tensors import exactly_zero
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class ZeroGradBeforeBackward(Intervention):
    """Of each optimizer by itself: what another one has not used yet is none of its business.

    A step that a scaler skips has used them as well. Gradients that are all zero were cleared by the script.
    """

    name = "zero_grad_before_backward"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._used: list[weakref.ref[Optimizer]] = []
        watcher.after_step.append(self._stepped)
        watcher.before_backward.append(self._clear)
        replace(GradScaler, ("step",), self._scaled)

    def _stepped(self, optimizer: Optimizer) -> None:
        if not any(used() is optimizer for used in self._used):
            self._used.append(weakref.ref(optimizer))

    @unseen_by_warnings
    def _scaled(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        optimizer = argument(args, kwargs, 1, "optimizer")
        if isinstance(optimizer, Optimizer):
            self._stepped(optimizer)
        return result

    def _clear(self) -> None:
        for used in self._used:
            optimizer = used()
            if optimizer is not None:
                self._clear_what_is_left(optimizer)
        self._used.clear()

    def _clear_what_is_left(self, optimizer: Optimizer) -> None:
        left = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for parameter, cleared in zip(left, exactly_zero([p.grad for p in left]), strict=True):
            if not cleared:
                parameter.grad = None
                self.note_changed(self._watcher, type(optimizer).__name__, "gradients already used were cleared")
