"""Take the steps of 16-bit parameters on float32 copies, which keep what the type rounds away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import LBFGS, Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.looking.float32_steps import LOW, low_precision

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Float32Steps(Intervention):
    """While a step runs, what it moves is float32; the model gets it back in its own type, as near as that can be.

    Forward and backward are those of the 16-bit type. What anybody else writes into a parameter begins its copy anew.
    """

    name = "float32_steps"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._masters: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        # Of the step that runs: parameter, its 16-bit memory, its 16-bit gradient.
        self._wide: list[tuple[Tensor, Tensor, Tensor | None]] = []
        watcher.before_step.append(self._widen)
        watcher.after_step.append(self._narrow)

    def _widen(self, optimizer: Optimizer) -> None:
        self._narrow(optimizer)  # of a step that raised, which the script caught
        if isinstance(optimizer, LBFGS):
            return  # it evaluates the model within the step
        for tensor in low_precision(optimizer):
            low, gradient = tensor.data, tensor.grad
            assert gradient is not None
            master = self._copy(tensor, low)
            self._wide.append((tensor, low, gradient))
            tensor.grad = None
            tensor.data = master
            tensor.grad = gradient.float()
            _widen_state(optimizer.state.get(tensor))
        if self._wide:
            name = type(optimizer).__name__
            self.note_changed(self._watcher, name, f"steps of {name} taken on float32 copies")

    def _copy(self, tensor: Tensor, low: Tensor) -> Tensor:
        """The copy that is kept, where the parameter is still what came of it; else a new one."""
        if tensor in self._masters:
            kept: Tensor = self._masters[tensor]
            if kept.shape == low.shape and bool((kept.to(low.dtype) == low).all()):
                return kept
        return low.float()

    def _narrow(self, optimizer: Optimizer) -> None:
        for tensor, low, gradient in self._wide:
            self._masters[tensor] = tensor.data
            tensor.grad = None
            tensor.data = low.copy_(tensor.data)
            tensor.grad = gradient
        self._wide.clear()


def _widen_state(state: dict[str, Any] | None) -> None:
    for key, value in (state or {}).items():
        if isinstance(value, Tensor) and value.dtype in LOW and state is not None:
            state[key] = value.float()
