"""Steps that go down: whatever the groups say about the direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Minimize(Intervention):
    """While a step runs no group maximizes, and a negative rate counts by its size; both are put back after it."""

    name = "minimize"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._put: list[tuple[dict[str, Any], str, Any, Any]] = []
        watcher.before_step.append(self._turn)
        watcher.after_step.append(self._put_back)

    def _turn(self, optimizer: Optimizer) -> None:
        self._put_back(optimizer)  # of a step that raised, which the script caught
        for number, group in enumerate(optimizer.param_groups):
            rate = group.get("lr")
            if group.get("maximize") is True:
                self._set(optimizer, number, "maximize", False)
            if isinstance(rate, (int, float, Tensor)) and bool(rate < 0):
                self._set(optimizer, number, "lr", abs(rate))

    def _set(self, optimizer: Optimizer, number: int, key: str, other: Any) -> None:
        group = optimizer.param_groups[number]
        self._put.append((group, key, group[key], other))
        group[key] = other
        self.note_changed(self._watcher, f"{type(optimizer).__name__} group {number}", "its steps were turned downhill")

    def _put_back(self, optimizer: Optimizer) -> None:
        for group, key, value, other in self._put:
            if group.get(key) is other:
                group[key] = value
        self._put.clear()
