"""An optimizer that remembers nothing of another run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class ResetOptimizerState(Intervention):
    """Loading into an optimizer gives it the groups' settings; what it remembers stays what it was before."""

    name = "reset_optimizer_state"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        watcher.wrap(Optimizer, "load_state_dict", self._load)

    @unseen_by_warnings
    def _load(self, original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        # Some have a state as soon as they are built: that is theirs.
        before = optimizer.state
        result = original(optimizer, *args, **kwargs)
        if optimizer.state:
            name = type(optimizer).__name__
            self.note_changed(self._watcher, name, f"the state that was loaded into {name} was dropped")
        optimizer.state = before
        return result
