"""Let a new optimizer step in place of the script's own: what moves then was held back by the old one."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import SGD, Adam, AdamW, Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.parameters import is_lazy

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

KINDS: dict[str, Callable[..., Optimizer]] = {"SGD": SGD, "Adam": Adam, "AdamW": AdamW}
NAMES_SHOWN = 20


class FreshOptimizer(Intervention):
    """Every optimizer of the script is given a `step` of ours when it is built.

    With several of them the fresh one steps for the first that asks; the others only evaluate their closures. Where no
    model has run yet the script's own step is taken.
    """

    name = "fresh_optimizer"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._fresh: Optimizer | None = None
        self._held: dict[int, Tensor] = {}
        self._building = False
        self._steps_for: weakref.ref[Optimizer] | None = None
        self._scaler: Any = None
        self._checked: tuple[int, int] | None = None
        _wrap(Optimizer, "__init__", self._built)
        _wrap(Optimizer, "__setstate__", self._built)  # a copied or unpickled one is never built
        _wrap(GradScaler, "step", self._scaled)

    @unseen_by_warnings
    def _built(self, original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        if self._building or "step" in vars(optimizer):
            return
        # Bound methods: schedulers take such a `step` apart and put it together again.
        intervention = self

        @unseen_by_warnings
        def step(optimizer: Optimizer, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
            return intervention._step(optimizer, closure, *args, **kwargs)

        @unseen_by_warnings
        def zero_grad(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            type(optimizer).zero_grad(optimizer, *args, **kwargs)
            intervention._clear(optimizer)

        vars(optimizer).update(step=MethodType(step, optimizer), zero_grad=MethodType(zero_grad, optimizer))

    @unseen_by_warnings
    def _step(self, optimizer: Optimizer, closure: Any, *args: Any, **kwargs: Any) -> Any:
        # The first forward may happen in the closure; torch's own steps evaluate theirs first, too.
        evaluated = _Evaluated(closure) if callable(closure) else None
        if not self._hold_all_trainable(optimizer):
            given = (evaluated or closure, *args) if closure is not None or args else ()
            return type(optimizer).step(optimizer, *given, **kwargs)
        assert self._fresh is not None
        if self._steps_for is None or self._steps_for() is None:
            self._steps_for = weakref.ref(optimizer)
        if self._steps_for() is not optimizer:
            return evaluated() if evaluated else None
        if self._scaler is not None and (loose := self._only_ours()):
            scale = self._scaler.get_scale()
            for parameter in loose:
                if parameter.grad is not None:
                    parameter.grad.div_(scale)
        self._fresh.step()
        return evaluated() if evaluated else None

    def _hold_all_trainable(self, optimizer: Optimizer) -> bool:
        """Build the fresh optimizer, or give it what became trainable since; False where there is nothing to hold."""
        state = (self._watcher.order, self._watcher.roots.trainable())
        if state != self._checked:
            found = {
                id(tensor): tensor
                for _, model in self._watcher.roots.alive()
                for tensor in model.parameters()
                if tensor.requires_grad and tensor.is_leaf and not is_lazy(tensor) and id(tensor) not in self._held
            }
            if found:
                self._hold(list(found.values()), optimizer)
            self._held |= found
            self._checked = (self._watcher.order, state[1])
        return self._fresh is not None

    def _hold(self, tensors: list[Tensor], optimizer: Optimizer) -> None:
        kind, rate = str(self.parameters["kind"]), float(str(self.parameters["lr"]))
        if self._fresh is None:
            self._building = True
            try:
                self._fresh = KINDS[kind](tensors, lr=rate, weight_decay=0.0)
            finally:
                self._building = False
        else:
            self._fresh.add_param_group({"params": tensors})
        self._watcher.name_everything()
        self.report.applied = True
        self.report.changed += [self._watcher.parameters.entry(tensor).name or "?" for tensor in tensors]
        shown = ", ".join(self.report.changed[:NAMES_SHOWN])
        more = len(self.report.changed) - NAMES_SHOWN
        self.report.detail = (
            f"{kind} with lr {rate!r} in place of {type(optimizer).__name__}, over {len(self.report.changed)} "
            f"parameters: {shown}{f' and {more} more' if more > 0 else ''}"
        )

    def _clear(self, optimizer: Optimizer) -> None:
        """What only the fresh optimizer holds is cleared when the optimizer that it steps for clears its own."""
        if self._fresh is not None and self._steps_for is not None and self._steps_for() is optimizer:
            for parameter in self._only_ours():
                parameter.grad = None

    def _only_ours(self) -> list[Tensor]:
        own = {
            id(tensor)
            for _, optimizer in self._watcher.optimizers.alive()
            if optimizer is not self._fresh
            for group in optimizer.param_groups
            for tensor in group["params"]
        }
        return [tensor for key, tensor in self._held.items() if key not in own]

    @unseen_by_warnings
    def _scaled(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._watcher.roots.alive():
            # A fused optimizer would divide the gradients itself, in the step that it does not take.
            optimizer._step_supports_amp_scaling = False
        self._scaler = scaler
        try:
            return original(scaler, optimizer, *args, **kwargs)
        finally:
            self._scaler = None


class _Evaluated:
    """A closure that was evaluated already: the first call answers what came of it."""

    def __init__(self, closure: Callable[[], Any]) -> None:
        self._closure = closure
        with torch.enable_grad():
            self._results = [closure()]

    def __call__(self) -> Any:
        return self._results.pop() if self._results else self._closure()


def _wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    original = owner.__dict__[name]

    @functools.wraps(original)
    @unseen_by_warnings
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapper)
