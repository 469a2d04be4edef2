"""Let each declared objective give gradients only to what it may touch: the one change that tells a leak apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.declared import matches
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.tensors import exactly_zero
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class IsolateObjectives(Intervention):
    """Gradients of parameters that an objective may not touch are laid aside while its backward runs.

    They are the same objects afterwards, as if the backward had not reached them. What may be touched is declared, and
    so is which line's backward belongs to which objective.
    """

    name = "isolate_objectives"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._running = False
        # Attached before the watcher's own hooks, it is called inside them: they see what is left.
        replace(torch.autograd, ("backward",), self._backward)

    @unseen_by_warnings
    def _backward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._running:
            return original(*args, **kwargs)
        objective, forbidden = self._forbidden()
        aside = [(name, parameter, parameter.grad) for name, parameter in forbidden]
        for _, parameter, _ in aside:
            parameter.grad = None
        self._running = True
        try:
            return original(*args, **kwargs)
        finally:
            self._running = False
            self._put_back(aside, objective)

    def _forbidden(self) -> tuple[str, list[tuple[str, Tensor]]]:
        declared, code = self._watcher.declared, self._watcher.code
        if not declared.objectives:
            self.report.detail = "no objectives were declared"
            return "", []
        name = declared.objective_at(code.site("backward called"))
        if name is None:
            return "", []
        self._watcher.name_everything()
        allowed = declared.objectives[name].parameters
        return name, [
            (entry.name, tensor)
            for entry, tensor in self._watcher.parameters.alive()
            if tensor.is_leaf and entry.in_model and entry.name is not None
            if not matches([entry.name, *(path for path, _ in entry.places)], allowed)
        ]

    def _put_back(self, aside: list[tuple[str, Tensor, Tensor | None]], objective: str) -> None:
        reached = [(name, parameter.grad) for name, parameter, _ in aside if parameter.grad is not None]
        zero = exactly_zero([gradient for _, gradient in reached])
        for (name, _), nothing in zip(reached, zero, strict=True):
            if not nothing:
                self.note_changed(self._watcher, name, f"the gradient of {objective} was kept away")
        for _, parameter, before in aside:
            parameter.grad = before
