"""Let the step of one line wait for the backward that comes after it: the order of two calls, and nothing else."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class DeferStepUntilBackward(Intervention):
    """Every optimizer of the script is given a `step` of ours when it is built, which knows the line that asks.

    A step with a closure calls backward itself and never waits. What still waits when the script ends is never taken:
    there was no backward left for it.
    """

    name = "defer_step_until_backward"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._waiting: list[weakref.ref[Optimizer]] = []
        self._depth = 0
        replace(Optimizer, ("__init__", "__setstate__"), self._built)  # a copied or unpickled one is never built
        watcher.when_installed.append(self._stand_around_backward)

    def _stand_around_backward(self) -> None:
        """Outside of all that watches a backward: for them the step comes after it, as it does."""
        replace(torch.autograd, ("backward",), self._backward)

    @unseen_by_warnings
    def _backward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            self._depth -= 1
        if not self._depth:  # activation checkpointing calls backward within backward
            self._take()
        return result

    @unseen_by_warnings
    def _built(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        original(*args, **kwargs)
        optimizer = args[0]
        if "step" in vars(optimizer):
            return
        intervention = self

        # A bound method: schedulers take such a `step` apart and put it together again.
        @unseen_by_warnings
        def step(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            return intervention._step(optimizer, *args, **kwargs)

        vars(optimizer)["step"] = MethodType(step, optimizer)

    @unseen_by_warnings
    def _step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        site = self._watcher.code.site("step called")
        if args or kwargs or site is None or site.place != self.parameters["site"]:
            return type(optimizer).step(optimizer, *args, **kwargs)
        self._waiting.append(weakref.ref(optimizer))
        kind = type(optimizer).__name__
        self.note_changed(self._watcher, kind, f"the step of {kind} waits until after the next backward")
        return None

    def _take(self) -> None:
        waiting, self._waiting = self._waiting, []
        for held in waiting:
            if (optimizer := held()) is not None:
                type(optimizer).step(optimizer)
