"""Interventions on what is evaluated, at the moment at which its evaluation begins."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.interventions.forwards import AroundForward

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class BeforeEvaluation(AroundForward):
    """Asked whenever a model is called without gradients after the first step."""

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._trained: list[weakref.ref[nn.Module]] = []

    @abstractmethod
    def evaluated(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """A model is about to be evaluated. What is answered is called when it has been."""

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._watcher.paused:
            return call(*args, **kwargs)
        if torch.is_grad_enabled():
            self._note_trained(module)
            return call(*args, **kwargs)
        afterwards = self.evaluated(module, args, kwargs) if self._watcher.tape.steps else None
        try:
            return call(*args, **kwargs)
        finally:
            if afterwards is not None:
                afterwards()

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
