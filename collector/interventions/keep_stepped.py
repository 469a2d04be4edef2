"""Keep what the steps have reached where something brings the first weights back."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

Kept = list[tuple["weakref.ref[Tensor]", Tensor]]


class KeepStepped(Intervention):
    """Where, before a forward, an optimizer's parameters are bit for bit what they were before its first step, they
    get back what its last step left. Any other write into them stands.
    """

    name = "keep_stepped"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._first: weakref.WeakKeyDictionary[Optimizer, Kept] = weakref.WeakKeyDictionary()
        self._last: weakref.WeakKeyDictionary[Optimizer, Kept] = weakref.WeakKeyDictionary()
        watcher.before_step.append(self._begins)
        watcher.after_step.append(self._ended)
        register_module_forward_pre_hook(self._forward)

    def _begins(self, optimizer: Optimizer) -> None:
        if optimizer not in self._first:
            self._first[optimizer] = _copies(optimizer)

    def _ended(self, optimizer: Optimizer) -> None:
        self._last[optimizer] = _copies(optimizer)

    def _forward(self, module: nn.Module, args: Any) -> None:
        # Without gradients a script evaluates: there it may exchange weights as it likes.
        if not self._last or not torch.is_grad_enabled() or self._watcher.paused:
            return
        for optimizer, last in list(self._last.items()):
            first = self._first.get(optimizer)
            if first is not None and _stands_as(first) and not _stands_as(last):
                _write(last)
                name = type(optimizer).__name__
                self.note_changed(self._watcher, name, f"what the last step of {name} left was put back")
        self._last.clear()  # once a step: what is written after a forward is another matter


def _copies(optimizer: Optimizer) -> Kept:
    held = [tensor for group in optimizer.param_groups for tensor in group["params"] if isinstance(tensor, Tensor)]
    return [(weakref.ref(tensor), tensor.detach().clone()) for tensor in held]


def _stands_as(kept: Kept) -> bool:
    alive = [(tensor, copy) for ref, copy in kept if (tensor := ref()) is not None]
    return bool(alive) and all(t.shape == c.shape and torch.equal(t.detach(), c) for t, c in alive)


def _write(kept: Kept) -> None:
    with torch.no_grad():
        for ref, copy in kept:
            if (tensor := ref()) is not None:
                tensor.copy_(copy)
