"""No gradient scaler: the loss is not multiplied, and no step is skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.amp import GradScaler

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class WithoutScaler(Intervention):
    """Every scaler is built switched off, as `enabled=False` does: `step` steps, and everything else does nothing."""

    name = "without_scaler"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._off: set[int] = set()
        replace(GradScaler, ("__init__",), self._built)
        replace(GradScaler, ("scale",), self._scale)

    @unseen_by_warnings
    def _built(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        original(*args, **kwargs)
        scaler = args[0]
        if scaler.is_enabled():
            scaler._enabled = False
            self._off.add(id(scaler))

    @unseen_by_warnings
    def _scale(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if id(args[0]) in self._off:
            self.note_changed(self._watcher, "GradScaler", "the loss was not scaled")
        return original(*args, **kwargs)
