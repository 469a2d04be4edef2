"""Class weights and class priors in the order of the classes: the one change that tells misplaced ones apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.interventions.forwards import AroundForward
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.prior import constant_offset

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class PriorByClass(AroundForward):
    """Class c takes the number at place `order[c]`: of a loss's weights, or of what was added to a model's scores."""

    name = "prior_by_class"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._output: Tensor | None = None
        self._order = torch.tensor(self.parameters["order"], device="cpu")
        replace(functional, ("cross_entropy", "nll_loss"), self._loss)

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        answer = call(*args, **kwargs)
        output = next((tensor for tensor in tensors_in(answer) if tensor.is_floating_point()), None)
        wanted = output is not None and output.dim() == 2 and output.shape[1] == len(self._order)
        self._output = output.detach().clone() if wanted and output is not None else None
        return answer

    @unseen_by_warnings
    def _loss(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 2, "weight")
        if isinstance(weight, Tensor) and weight.dim() == 1 and len(weight) == len(self._order):
            other = weight[self._order.to(weight.device)]
            if not torch.equal(other, weight):
                self.note_changed(self._watcher, original.__name__, "class weights in the order of the classes")
            args, kwargs = with_argument(args, kwargs, 2, "weight", other)
        elif weight is None and isinstance(scores, Tensor) and self._output is not None:
            offset = constant_offset(scores.detach(), self._output)
            if offset is not None:
                moved = (offset[self._order.to(offset.device)] - offset).to(scores.dtype)
                self.note_changed(self._watcher, original.__name__, "class priors in the order of the classes")
                args, kwargs = with_argument(args, kwargs, 0, "input", scores + moved)
        return original(*args, **kwargs)
