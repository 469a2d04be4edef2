"""Interventions on what is evaluated, at the moment at which its evaluation begins."""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import is_traced

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class BeforeEvaluation(Intervention):
    """Asked whenever a model is called without gradients after the first step, right before its forward."""

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._thread = threading.local()
        self._trained: list[weakref.ref[nn.Module]] = []
        nn.modules.module.register_module_forward_pre_hook(self._begins, with_kwargs=True)
        nn.modules.module.register_module_forward_hook(self._ended, always_call=True)

    @abstractmethod
    def evaluated(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is about to be evaluated."""

    def _begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_traced():
            return
        depth = getattr(self._thread, "depth", 0)
        self._thread.depth = depth + 1
        if depth or self._watcher.paused:
            return
        if torch.is_grad_enabled():
            self._note_trained(module)
        elif self._watcher.tape.steps:
            self.evaluated(module, args, kwargs)

    def _ended(self, module: nn.Module, args: Any, output: Any) -> None:
        if not is_traced():
            self._thread.depth = max(getattr(self._thread, "depth", 1) - 1, 0)

    def _note_trained(self, module: nn.Module) -> None:
        if self._is_trained(module) or not any(parameter.requires_grad for parameter in module.parameters()):
            return
        self._trained.append(weakref.ref(module))

    def _is_trained(self, module: nn.Module) -> bool:
        return any(ref() is module for ref in self._trained)

    def twin(self, module: nn.Module) -> nn.Module | None:
        """The trained model of the same layout, where this is another object that is not trained itself."""
        wanted = [parameter.shape for parameter in module.parameters()]
        if self._is_trained(module) or not wanted:
            return None
        alive = (ref() for ref in self._trained)
        return next((one for one in alive if one is not None and _shapes(one) == wanted), None)


def _shapes(module: nn.Module) -> list[torch.Size]:
    return [parameter.shape for parameter in module.parameters()]


def other_buffers(module: nn.Module, twin: nn.Module) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, buffer and its counterpart, where their values differ. A wrapper's names begin with one word more."""
    theirs: dict[str, Tensor] = dict(twin.named_buffers())
    for name, own in module.named_buffers():
        other = theirs.get(name, theirs.get(name.partition(".")[2]))
        if other is not None and other.shape == own.shape and not torch.equal(own, other.to(own)):
            yield name, own, other
