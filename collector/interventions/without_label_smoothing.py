"""No label smoothing: the loss can fall to zero again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class WithoutLabelSmoothing(Intervention):
    """Cross entropy is called with label smoothing 0."""

    name = "without_label_smoothing"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(functional, ("cross_entropy",), self._loss)

    @unseen_by_warnings
    def _loss(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        smoothing = argument(args, kwargs, 7, "label_smoothing", 0.0)
        if smoothing:
            self.note_changed(self._watcher, "cross_entropy", f"label smoothing {smoothing!r} -> 0.0")
            args, kwargs = with_argument(args, kwargs, 7, "label_smoothing", 0.0)
        return original(*args, **kwargs)
