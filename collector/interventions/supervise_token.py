"""The token that ends a text is a target again: the one change that tells an end taken for padding apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.interventions.forwards import AroundForward
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.interventions.without_ignore_index import IGNORED
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class SuperviseToken(AroundForward):
    """Where each row of the ids begins to end in that token, the first one is the target of the position before it.

    Only in a loss over classes whose targets are those ids moved by one position, and only in place of an ignored one.
    """

    name = "supervise_token"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._ids: Tensor | None = None
        replace(functional, ("cross_entropy", "nll_loss"), self._loss)

    def outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not self._watcher.paused:
            # Before the forward: a model may compute its own loss.
            found = (tensor for tensor in tensors_in((args, kwargs)) if _are_tokens(tensor))
            ids = next(found, None)
            self._ids = ids.detach() if ids is not None else None
        return call(*args, **kwargs)

    @unseen_by_warnings
    def _loss(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = argument(args, kwargs, 1, "target")
        ignored = int(argument(args, kwargs, 4, "ignore_index", IGNORED))
        if self._ids is None or not isinstance(target, Tensor) or target.is_floating_point():
            return original(*args, **kwargs)
        token = int(str(self.parameters["token"]))
        ends = ends_of(target, self._ids.to(target.device), token, ignored)
        if ends is None or not bool((target[ends] == ignored).any()):
            return original(*args, **kwargs)
        # Where the token itself is what marks a gap, the gaps that stay one need another mark.
        gaps = torch.where(target == ignored, torch.full_like(target, IGNORED), target)
        other = torch.where(ends, torch.full_like(target, token), gaps)
        self.note_changed(self._watcher, original.__name__, f"token {token} supervised")
        args, kwargs = with_argument(args, kwargs, 1, "target", other)
        args, kwargs = with_argument(args, kwargs, 4, "ignore_index", IGNORED)
        return original(*args, **kwargs)


def ends_of(target: Tensor, ids: Tensor, token: int, ignored: int) -> Tensor | None:
    """Where the target is the first of the tokens that end its row, of the target's shape.

    None where the targets are not these ids, (rows, length), moved by one position: in all that is not ignored.
    """
    rows, length = ids.shape
    width = target.numel() // rows if rows and target.numel() % rows == 0 else 0
    if width not in (length - 1, length):
        return None
    arranged = target.reshape(rows, width)
    inner, following = arranged[:, : length - 1], ids[:, 1:].to(target.dtype)
    known = inner != ignored
    if not bool(known.any()) or not bool((inner == following)[known].all()):
        return None
    tail = (ids.flip(1) == token).long().cumprod(1).sum(1)
    place = length - tail - 1  # of the position whose next token is the first of the tail
    there = ((tail > 0) & (place >= 0) & (place < length - 1)).nonzero().flatten()
    ends = torch.zeros_like(arranged, dtype=torch.bool)
    ends[there, place[there]] = True
    return ends.reshape(target.shape)


def _are_tokens(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32) and tensor.shape[1] > 1
