"""Checkpoints that keep the graph: one that is re-entrant cuts what only its own parameters would connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class NonReentrantCheckpoint(Intervention):
    """`torch.utils.checkpoint.checkpoint` is called with `use_reentrant=False`."""

    name = "non_reentrant_checkpoint"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(checkpoint, ("checkpoint",), self._checkpoint)

    @unseen_by_warnings
    def _checkpoint(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Left out it is re-entrant, with a warning.
        if kwargs.get("use_reentrant", True) is False:
            return original(*args, **kwargs)
        if torch.is_grad_enabled():  # without gradients both kinds do the same
            self.note_changed(self._watcher, "checkpoint", "checkpointed without re-entering")
        return original(*args, **{**kwargs, "use_reentrant": False})
