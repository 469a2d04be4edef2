"""Where an evaluation switches its model to train mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import is_traced, unseen_by_warnings
from weaklink.collector.watching.part import Part, RootCall

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


@dataclass
class ModesRecord:
    """The last `train()` of the script's own between a step and an evaluation in train mode."""

    switched: Site | None = None


class ModesPart(Part):
    """Remembers the last `train()`; looks once an evaluation pass."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(ModesRecord)
        self._last: tuple[int, Site] | None = None
        self._seen_at = -1

    def install(self) -> None:
        """Follow the method that every module has."""
        self.watcher.wrap(nn.Module, "train", self._watched_train)

    @unseen_by_warnings
    def _watched_train(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        mode = args[0] if args else kwargs.get("mode", True)
        if mode and not is_traced():
            site = self.watcher.code.direct_site("switched to train mode")  # a child is told by its parent
            if site is not None:
                self._last = (self.tape.steps, site)
        return original(module, *args, **kwargs)

    def root_called(self, call: RootCall) -> None:
        """An evaluation that begins after steps: was the model told to train since the last of them?"""
        if call.with_gradients or not call.module.training or self.tape.steps == self._seen_at:
            return
        self._seen_at = self.tape.steps
        if self._last is not None and self._last[0] == self.tape.steps > 0:
            self.record.switched = self._last[1]
