"""Keep gradients until a step has used them: the one change that tells early clearing from a path that is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class KeepGradUntilStep(Intervention):
    """`zero_grad`, of an optimizer or a module, clears nothing once a backward has run since the last step.

    Any optimizer's step ends the window, and so does one that a scaler was asked for and skips: what is cleared after
    it (the critic's part of a generator's gradient) was not meant for a step to come.
    """

    name = "keep_grad_until_step"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._waiting = False
        self._in_step = False
        watcher.before_backward.append(self._backward)
        watcher.before_step.append(self._step_begins)
        watcher.after_step.append(self._step_ended)
        replace(GradScaler, ("step",), self._scaled)
        for owner in (Optimizer, nn.Module):
            replace(owner, ("zero_grad",), self._zero_grad)

    def _backward(self) -> None:
        self._waiting = not self._in_step

    def _step_begins(self, optimizer: Optimizer) -> None:
        self._in_step = True  # a closure clears, and calls backward, by itself

    def _step_ended(self, optimizer: Optimizer) -> None:
        self._in_step = self._waiting = False

    @unseen_by_warnings
    def _scaled(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        self._in_step = self._waiting = False
        return result

    @unseen_by_warnings
    def _zero_grad(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._waiting or self._in_step or not any(p.grad is not None for p in _parameters(args[0])):
            return original(*args, **kwargs)
        site = self._watcher.code.site("gradients cleared")
        place = f"{site.file}:{site.line}" if site is not None else "zero_grad"
        self.note_changed(self._watcher, place, "zero_grad cleared nothing")
        return None


def _parameters(owner: Any) -> Iterator[Tensor]:
    if isinstance(owner, nn.Module):
        yield from owner.parameters()
    else:
        yield from (parameter for group in owner.param_groups for parameter in group["params"])
