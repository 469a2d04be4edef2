"""Dropout that drops in train mode only, however it is called."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from weaklink.collector.interventions.without_dropout import WithoutDropout

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class DropoutFollowsMode(WithoutDropout):
    """Inside a module that is in eval mode dropout drops nothing.

    It still draws its random numbers, so that the training that follows an evaluation draws the ones that it drew.
    """

    name = "dropout_follows_mode"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._thread = threading.local()
        nn.modules.module.register_module_forward_pre_hook(self._begins)
        nn.modules.module.register_module_forward_hook(self._ended, always_call=True)

    def _begins(self, module: nn.Module, args: Any) -> None:
        self._inside.append(module.training)

    def _ended(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._inside:
            self._inside.pop()

    @property
    def _inside(self) -> list[bool]:
        """Whether the modules under way are in train mode, outermost first."""
        if not hasattr(self._thread, "modes"):
            self._thread.modes = []
        modes: list[bool] = self._thread.modes
        return modes

    def _trains(self) -> bool:
        return not self._inside or self._inside[-1]

    def _pass(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], active: bool, in_place: bool
    ) -> Any:
        return super()._pass(original, args, kwargs, active and not self._trains(), in_place)

    def _attention(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return original(*args, **kwargs) if self._trains() else super()._attention(original, args, kwargs)

    def _recurrent(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return original(*args, **kwargs) if self._trains() else super()._recurrent(original, args, kwargs)
