"""Let the gradient pass where one line of the user's code detaches: the one change that tells a cut graph apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Reattach(Intervention):
    """`detach` on that line answers its own input.

    Only a call that the line makes itself: what a library calls inside, on its behalf, goes through.
    """

    name = "reattach"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        for owner in (Tensor, torch):
            replace(owner, ("detach", "detach_"), self._detach)

    @unseen_by_warnings
    def _detach(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0] if args else kwargs.get("input")
        if not isinstance(tensor, Tensor) or not tensor.requires_grad:
            return original(*args, **kwargs)
        site = self._watcher.code.direct_site("detach called")
        if site is None or f"{site.file}:{site.line}" != self.parameters["site"]:
            return original(*args, **kwargs)
        self.note_changed(self._watcher, f"{site.file}:{site.line}", f"{original.__name__} answered its own input")
        return tensor
