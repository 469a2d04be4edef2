"""One value of an optimizer's groups, changed while a step runs and put back after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class ValueDuringStep(Intervention):
    """The same object is put back, so that schedulers and the script's own prints see what they would have seen."""

    key: ClassVar[str]

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._put: list[tuple[dict[str, Any], Any, Any]] = []
        watcher.before_step.append(self._change)
        watcher.after_step.append(self._put_back)

    def other(self, value: Any) -> Any:
        """What stands in for the group's value: a number, or a tensor where it is one."""
        return value

    def in_group(self, optimizer: Optimizer, number: int, value: Any) -> Any:
        """The same, where it depends on the group."""
        return self.other(value)

    def _change(self, optimizer: Optimizer) -> None:
        self._put_back(optimizer)  # of a step that raised, which the script caught
        for number, group in enumerate(optimizer.param_groups):
            value = group.get(self.key)
            if isinstance(value, bool) or not isinstance(value, (int, float, Tensor)):
                continue
            other = self.in_group(optimizer, number, value)
            if not self.report.applied and bool(other == value):
                continue
            group[self.key] = other
            self._put.append((group, value, other))
            if not self.report.applied:
                self._tell(optimizer, number, value, other)

    def _tell(self, optimizer: Optimizer, number: int, value: Any, other: Any) -> None:
        kind = type(optimizer).__name__
        self.report.changed.append(f"{kind} group {number}")
        step = self._watcher.tape.steps + 1
        self.report.detail = f"{self.key} of {kind} {float(value)!r} -> {float(other)!r}, first during step {step}"
        self.report.applied = True

    def _put_back(self, optimizer: Optimizer) -> None:
        for group, value, other in self._put:
            if group.get(self.key) is other:  # else the step itself has set it
                group[self.key] = value
        self._put.clear()
