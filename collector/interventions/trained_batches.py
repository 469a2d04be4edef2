"""Other batches for the forwards that are trained on, and other targets for the losses of torch that follow them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.interventions.forwards import AroundForward
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.interventions.targets import LOSSES
from weaklink.collector.tensors import mapped, tensors_in
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class TrainedBatches(AroundForward):
    """`inputs` before a model's outermost forward with gradients, `targets` at each loss until the next one.

    A batch is what has as many rows as the first tensor that the model was given.
    """

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._rows = 0
        for name, position in LOSSES.items():
            replace(functional, (name,), functools.partial(self._loss, name, position))

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._rows = 0
        if not torch.is_grad_enabled() or self._watcher.paused:
            return call(*args, **kwargs)
        self._rows = next((len(t) for t in tensors_in((args, kwargs)) if t.dim()), 0)
        if not self._rows:
            return call(*args, **kwargs)
        given = self.inputs(module, args, kwargs, self._rows)
        return call(*given[0], **given[1])

    @abstractmethod
    def inputs(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is given instead, of `rows` rows."""

    def targets(self, name: str, targets: Tensor, rows: int) -> Tensor:
        """What takes the targets' place: as they are, where only inputs change."""
        return targets

    @unseen_by_warnings
    def _loss(
        self,
        name: str,
        position: int,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        targets = argument(args, kwargs, position, "target")
        if not self._rows or not isinstance(targets, Tensor) or targets.is_meta or not torch.is_grad_enabled():
            return original(*args, **kwargs)
        args, kwargs = with_argument(args, kwargs, position, "target", self.targets(name, targets, self._rows))
        return original(*args, **kwargs)


def by_row(given: Any, rows: int, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest, with each tensor changed that has one row an example."""
    return mapped(given, lambda tensor: change(tensor) if tensor.dim() and len(tensor) == rows else tensor)
