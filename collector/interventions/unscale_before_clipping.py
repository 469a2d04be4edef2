"""Clip the gradients themselves, not the gradients times the scaler's scale."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.amp import GradScaler
from torch.nn import utils
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class UnscaleBeforeClipping(Intervention):
    """torch's clipping functions first let the scaler unscale the optimizers that hold what is clipped.

    Once between two updates of the scaler, as it demands; the script's own `unscale_` of what is unscaled does nothing.
    """

    name = "unscale_before_clipping"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._scaler: weakref.ref[Any] | None = None
        # Optimizers that are done with, until the scaler is updated: unscaled by us, or by a call of the script's own.
        self._ours: set[int] = set()
        self._done: set[int] = set()
        watcher.wrap(GradScaler, "scale", self._scale)
        watcher.wrap(GradScaler, "unscale_", self._unscale)
        watcher.wrap(GradScaler, "step", self._step)
        watcher.wrap(GradScaler, "update", self._update)
        for owner in (utils, utils.clip_grad):
            replace(owner, ("clip_grad_norm_", "clip_grad_value_"), self._clip)

    @unseen_by_warnings
    def _scale(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        if scaler.is_enabled():
            self._scaler = weakref.ref(scaler)
        return original(scaler, *args, **kwargs)

    @unseen_by_warnings
    def _unscale(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if id(optimizer) in self._ours:
            self._ours.discard(id(optimizer))  # a second call of the script's own is its own mistake
            return None
        self._done.add(id(optimizer))
        return original(scaler, optimizer, *args, **kwargs)

    @unseen_by_warnings
    def _step(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self._done.add(id(optimizer))
        return original(scaler, optimizer, *args, **kwargs)

    @unseen_by_warnings
    def _update(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        self._ours.clear()
        self._done.clear()
        self._scaler = None  # until it scales again
        return original(scaler, *args, **kwargs)

    @unseen_by_warnings
    def _clip(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = argument(args, kwargs, 0, "parameters")
        parameters = [given] if isinstance(given, Tensor) else list(given)
        args, kwargs = with_argument(args, kwargs, 0, "parameters", parameters)
        scaler = self._scaler() if self._scaler is not None else None
        if scaler is not None:
            self._unscale_all(scaler, self._holding(parameters), original.__name__)
        return original(*args, **kwargs)

    def _unscale_all(self, scaler: Any, optimizers: list[Optimizer], function: str) -> None:
        for optimizer in optimizers:
            with self._watcher.looking_away():
                scale = scaler.get_scale()
            scaler.unscale_(optimizer)
            self._ours.add(id(optimizer))
            if scale != 1.0:
                self.note_changed(self._watcher, function, f"unscaled from {scale:g} before clipping")

    def _holding(self, parameters: list[Tensor]) -> list[Optimizer]:
        """Optimizers that hold one of them, with a gradient that is still scaled."""
        clipped = {id(parameter) for parameter in parameters if parameter.grad is not None}
        return [
            optimizer
            for _, optimizer in self._watcher.optimizers.alive()
            if id(optimizer) not in self._done
            and any(id(tensor) in clipped for group in optimizer.param_groups for tensor in group["params"])
        ]
