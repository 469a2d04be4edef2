"""The rate that the optimizer was built with, at every step: whatever a schedule makes of it has no effect."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.interventions.group_values import ValueDuringStep
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class HoldScheduler(ValueDuringStep):
    """During each step every group has the rate that it had when it was given to its optimizer.

    Schedulers go on, and what they set is put back after the step: the next one builds on it, and the script reads it.
    A group that was never given to an optimizer (of one that was copied or unpickled) keeps the rate of its first step.
    """

    name = "hold_scheduler"
    key = "lr"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._built: weakref.WeakKeyDictionary[Optimizer, dict[int, Any]] = weakref.WeakKeyDictionary()
        watcher.wrap(Optimizer, "add_param_group", self._added)

    @unseen_by_warnings
    def _added(self, original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        if optimizer.param_groups:
            number = len(optimizer.param_groups) - 1
            self._keep(optimizer, number, optimizer.param_groups[number].get(self.key))
        return result

    def in_group(self, optimizer: Optimizer, number: int, value: Any) -> Any:
        return self._keep(optimizer, number, value)

    def _keep(self, optimizer: Optimizer, number: int, value: Any) -> Any:
        # Schedulers write into a rate that is a tensor.
        kept = value.clone() if isinstance(value, Tensor) else value
        return self._built.setdefault(optimizer, {}).setdefault(number, kept)
