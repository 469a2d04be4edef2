"""Let the gradient pass where one line of the user's code cuts it off: the one change that tells a cut graph apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace
from weaklink.collector.watching.context import is_traced, unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Reattach(Intervention):
    """`detach` and `.data` on that line answer their own input; a tensor rebuilt there from tensors is stacked of them.

    Only a call that the line makes itself: what a library calls inside, on its behalf, goes through. A tensor that is
    rebuilt from plain numbers cannot be joined to anything.
    """

    name = "reattach"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        for owner in (Tensor, torch):
            replace(owner, ("detach", "detach_"), self._detach)
        replace(torch, ("tensor", "as_tensor"), self._rebuild)
        data: Any = Tensor.data
        Tensor.data = property(self._data, data.__set__)  # type: ignore[assignment]
        self._plain_data: Callable[[Tensor], Tensor] = data.__get__

    @unseen_by_warnings
    def _detach(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0] if args else kwargs.get("input")
        if not isinstance(tensor, Tensor) or not tensor.requires_grad or not self._here():
            return original(*args, **kwargs)
        self._joined(f"{original.__name__} answered its own input")
        return tensor

    @unseen_by_warnings
    def _data(self, tensor: Tensor) -> Tensor:
        # Of a parameter it is there to be written to.
        if tensor.grad_fn is None or is_traced() or not self._here():
            return self._plain_data(tensor)
        self._joined(".data answered its own tensor")
        return tensor

    @unseen_by_warnings
    def _rebuild(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = argument(args, kwargs, 0, "data")
        result = original(*args, **kwargs)
        parts = [given] if isinstance(given, Tensor) else given
        if not _with_history(parts) or not torch.is_grad_enabled() or not self._here():
            return result
        joined = given if isinstance(given, Tensor) else torch.stack(list(given))
        joined = joined.to(result)
        if joined is given and original.__name__ == "tensor":
            joined = joined.clone()  # a tensor of its own, as it answers
        self._joined(f"{original.__name__} stacked what it was given")
        return joined

    def _here(self) -> bool:
        site = self._watcher.code.direct_site("cut off")
        return site is not None and site.place == self.parameters["site"]

    def _joined(self, how: str) -> None:
        self.note_changed(self._watcher, str(self.parameters["site"]), how)


def _with_history(parts: Any) -> bool:
    """Whether it is a list of tensors of one shape, some of which carry a history, or one tensor that does."""
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Tensor) for part in parts):
        return False
    return any(part.requires_grad for part in parts) and len({part.shape for part in parts}) == 1
