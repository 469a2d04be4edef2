"""Standing around the outermost calls of models: their arguments before, their mode meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class AroundForward(Intervention):
    """Every call of a module goes through `outermost` if no other is around it, else through `inner`.

    The call and not torch's hooks: a hook before a forward is not given keyword arguments, and one after it may come
    before the watcher's own has looked. Modules without parameters, losses above all, are left alone.
    """

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._thread = threading.local()
        replace(nn.Module, ("__call__",), self._called)

    @property
    def inside(self) -> bool:
        """Whether a model's forward is under way in this thread."""
        return getattr(self._thread, "depth", 0) > 0

    @unseen_by_warnings
    def _called(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module, *rest = args
        if self.inside or next(module.parameters(), None) is None:
            return original(*args, **kwargs)
        self._thread.depth = 1
        try:
            return self.outermost(lambda *a, **k: original(module, *a, **k), module, tuple(rest), kwargs)
        finally:
            self._thread.depth = 0

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer in place of `call(*args, **kwargs)`."""
        return call(*args, **kwargs)
