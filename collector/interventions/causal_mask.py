"""No position attends to a later one: the one change that tells a model that reads its answers from everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.interventions.forwards import AroundForward
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class CausalMask(AroundForward):
    """Attention of a sequence to itself, without a mask of its own, gets the causal one.

    In torch's attention; and in a softmax over (..., length, length) inside a model that was given ids of (rows,
    length), which is attention written by hand.
    """

    name = "causal_mask"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._length: int | None = None
        replace(functional, ("scaled_dot_product_attention",), self._attention)
        replace(functional, ("multi_head_attention_forward",), self._heads)
        for owner in (functional, torch, Tensor):
            replace(owner, ("softmax",), self._softmax)

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        ids = (t for t in tensors_in((args, kwargs)) if t.dim() == 2 and not t.is_floating_point())
        self._length = next((t.shape[1] for t in ids if t.dtype is not torch.bool), None)
        if not self.report.applied:
            return call(*args, **kwargs)
        # The fused path of an encoder in eval mode calls none of these functions. Where there was nothing to mask so
        # far it stays as it is.
        before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            return call(*args, **kwargs)
        finally:
            torch.backends.mha.set_fastpath_enabled(before)

    @unseen_by_warnings
    def _attention(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        query, key = argument(args, kwargs, 0, "query"), argument(args, kwargs, 1, "key")
        mask, length = argument(args, kwargs, 3, "attn_mask"), query.shape[-2]
        masked = argument(args, kwargs, 5, "is_causal", False) or (mask is not None and mask.shape[-2] != 1)
        if masked or not self.inside or length != key.shape[-2] or length < 2:
            return original(*args, **kwargs)
        self.note_changed(self._watcher, original.__name__, "a causal mask added")
        if mask is None:
            args, kwargs = with_argument(args, kwargs, 5, "is_causal", True)
        else:  # one row for all positions: what is padding, and no order of them
            later = _later(length, query.device)
            both = mask & ~later if mask.dtype is torch.bool else mask.masked_fill(later, -torch.inf)
            args, kwargs = with_argument(args, kwargs, 3, "attn_mask", both)
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _heads(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        query, key = argument(args, kwargs, 0, "query"), argument(args, kwargs, 1, "key")
        mask = argument(args, kwargs, 16, "attn_mask")
        if mask is not None or not self.inside or query is not key or query.shape[0] < 2:
            return original(*args, **kwargs)
        self.note_changed(self._watcher, original.__name__, "a causal mask added")
        args, kwargs = with_argument(args, kwargs, 16, "attn_mask", _later(query.shape[0], query.device))
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _softmax(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores, dim = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "dim")
        if not isinstance(scores, Tensor) or not self.inside or not _is_square(scores, dim, self._length):
            return original(*args, **kwargs)
        later = _later(scores.shape[-1], scores.device)
        if bool((scores.detach().masked_select(later) == -torch.inf).all()):
            return original(*args, **kwargs)  # masked already
        self.note_changed(self._watcher, original.__name__, "a causal mask added")
        args, kwargs = with_argument(args, kwargs, 0, "input", scores.masked_fill(later, -torch.inf))
        return original(*args, **kwargs)


def _later(length: int, device: torch.device) -> Tensor:
    """(length, length): whether a column stands behind its row."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def _is_square(scores: Tensor, dim: Any, length: int | None) -> bool:
    if scores.dim() < 3 or not isinstance(dim, int) or dim % scores.dim() != scores.dim() - 1:
        return False
    return length is not None and length > 1 and tuple(scores.shape[-2:]) == (length, length)
