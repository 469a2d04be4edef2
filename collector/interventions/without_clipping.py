"""No clipping of gradients: each step gets what backward left."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import utils

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class WithoutClipping(Intervention):
    """torch's clipping functions work on copies: they return the norm that they would, and change nothing."""

    name = "without_clipping"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        for owner in (utils, utils.clip_grad):
            replace(owner, ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"), self._clip)

    @unseen_by_warnings
    def _clip(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = argument(args, kwargs, 0, "parameters")
        parameters = [given] if isinstance(given, Tensor) else list(given)
        # They read nothing of a parameter but its gradient.
        copies = [SimpleNamespace(grad=None if p.grad is None else p.grad.clone()) for p in parameters]
        args, kwargs = with_argument(args, kwargs, 0, "parameters", copies)
        result = original(*args, **kwargs)
        if not self.report.applied and any(_differ(p.grad, c.grad) for p, c in zip(parameters, copies, strict=True)):
            self.note_changed(self._watcher, original.__name__, "gradients left as they were")
        return result


def _differ(gradient: Tensor | None, copy: Tensor | None) -> bool:
    if gradient is None or copy is None:
        return False
    if gradient.is_sparse:
        gradient, copy = gradient.to_dense(), copy.to_dense()
    return not torch.allclose(gradient, copy, rtol=0.0, atol=0.0, equal_nan=True)
