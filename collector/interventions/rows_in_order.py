"""Rows leave a model in the order in which they came: the one change that tells a lost order from everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.interventions.forwards import AroundForward
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class RowsInOrder(AroundForward):
    """Inside a model, one number a row is not sorted: values and positions stay as they came.

    What wants sorted lengths, `pack_padded_sequence`, is told that they are not, and puts the rows back by itself.
    """

    name = "rows_in_order"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._rows: set[int] = set()
        for owner in (torch, Tensor):
            replace(owner, ("sort", "argsort"), self._sort)
        replace(nn.utils.rnn, ("pack_padded_sequence",), self._pack)

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._rows = {len(tensor) for tensor in tensors_in((args, kwargs)) if tensor.dim()}
        return call(*args, **kwargs)

    @unseen_by_warnings
    def _sort(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = argument(args, kwargs, 0, "input")
        meant = self.inside and isinstance(values, Tensor) and values.dim() == 1 and len(values) in self._rows
        if not meant or self._watcher.code.direct_site("sorted") is None:
            return original(*args, **kwargs)
        result = original(*args, **kwargs)
        order = result if isinstance(result, Tensor) else result[1]
        places = torch.arange(len(values), device=order.device)
        if not torch.equal(order, places):
            self.note_changed(self._watcher, original.__name__, "rows left in the order in which they came")
        if isinstance(result, Tensor):
            return places
        return type(result)((values.clone(), places))

    @unseen_by_warnings
    def _pack(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.inside and argument(args, kwargs, 3, "enforce_sorted", True):
            args, kwargs = with_argument(args, kwargs, 3, "enforce_sorted", False)
        return original(*args, **kwargs)
