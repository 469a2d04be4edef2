"""Let outputs and targets meet element by element: the one change that tells (B,) against (B, 1) from all else."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.interventions.targets import LOSSES
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# What a loss written by hand makes of two tensors, entry by entry: operators, methods and functions.
_WORDS = ("add", "sub", "mul", "div", "true_divide", "multiply", "subtract", "divide", "maximum", "minimum", "pow")
_BINARY = ("add", "sub", "mul", "truediv", "pow", "radd", "rsub", "rmul", "rtruediv")
_OPERATORS = tuple(f"__{word}__" for word in _BINARY)


class MatchTargetShape(Intervention):
    """A target with as many entries as the outputs takes their shape where the two would be broadcast.

    In the losses of torch wherever they are called, and in the arithmetic of the function that holds the line `site`:
    there the operand without a history is the target.
    """

    name = "match_target_shape"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        for name, position in LOSSES.items():
            replace(functional, (name,), functools.partial(self._loss, name, position))
        if self.parameters["site"]:
            replace(Tensor, (*_OPERATORS, *_WORDS), self._met)
            replace(torch, _WORDS, self._met)

    @unseen_by_warnings
    def _loss(
        self,
        name: str,
        position: int,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        outputs, targets = argument(args, kwargs, 0, "input"), argument(args, kwargs, position, "target")
        if isinstance(outputs, Tensor) and isinstance(targets, Tensor) and _crossed(outputs, targets):
            self.note_changed(self._watcher, name, _how(targets, outputs))
            args, kwargs = with_argument(args, kwargs, position, "target", targets.reshape(outputs.shape))
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _met(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 2 or not all(isinstance(one, Tensor) for one in args):
            return original(*args, **kwargs)
        one, other = args
        if not _crossed(one, other) or one.requires_grad == other.requires_grad or not self._is_there():
            return original(*args, **kwargs)
        given, like = (other, one) if one.requires_grad else (one, other)
        if isinstance(like, nn.Parameter):
            return original(*args, **kwargs)
        self.note_changed(self._watcher, str(self.parameters["site"]), _how(given, like))
        alike = given.reshape(like.shape)
        return original(one, alike, **kwargs) if given is other else original(alike, other, **kwargs)

    def _is_there(self) -> bool:
        """Whether the function that calls holds the line: a formula has several, and one of them alone is no repair."""
        frame = self._watcher.code.direct_frame()
        file, _, line = str(self.parameters["site"]).rpartition(":")
        if frame is None or self._watcher.code.relative(frame.f_code.co_filename) != file:
            return False
        return any(at == int(line) for _, _, at in frame.f_code.co_lines())


def _crossed(one: Tensor, other: Tensor) -> bool:
    """As many entries in another number of dimensions, and more of them once they are broadcast."""
    if one.dim() == other.dim() or one.numel() != other.numel() or min(one.dim(), other.dim()) == 0:
        return False
    longer, shorter = sorted((tuple(one.shape), tuple(other.shape)), key=len, reverse=True)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    if any(a != b and 1 not in (a, b) for a, b in zip(longer, padded, strict=True)):
        return False
    return math.prod(map(max, longer, padded)) > one.numel()


def _how(targets: Tensor, outputs: Tensor) -> str:
    return f"targets {list(targets.shape)} -> {list(outputs.shape)}"
