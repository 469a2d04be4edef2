"""No class is ignored: the one change that tells a label left out by mistake from a model that cannot learn it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

IGNORED = -100  # torch's own, which is no class


class WithoutIgnoreIndex(Intervention):
    """A loss over classes ignores no label that its scores have a place for. Others, 255 say, stay ignored."""

    name = "without_ignore_index"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(functional, ("cross_entropy", "nll_loss"), self._loss)

    @unseen_by_warnings
    def _loss(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores, target = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "target")
        ignored = argument(args, kwargs, 4, "ignore_index", IGNORED)
        if not isinstance(target, Tensor) or target.is_floating_point() or not 0 <= int(ignored) < _classes(scores):
            return original(*args, **kwargs)
        if not self.report.applied and torch.is_grad_enabled() and bool((target == ignored).any()):
            self.note_changed(self._watcher, original.__name__, f"ignore_index {int(ignored)} -> {IGNORED}")
        args, kwargs = with_argument(args, kwargs, 4, "ignore_index", IGNORED)
        return original(*args, **kwargs)


def _classes(scores: Any) -> int:
    if not isinstance(scores, Tensor) or not scores.dim():
        return 0
    return int(scores.shape[1] if scores.dim() > 1 else scores.shape[0])
