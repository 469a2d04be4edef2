"""Feed the loss the raw scores: the one change that tells probabilities taken for scores from everything else."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

# What may stand between the softmax and the loss: each entry of the result is one entry of the input.
SHAPING = ("view", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "flatten", "contiguous", "float")
FED = ("cross_entropy", "log_softmax")


@dataclass(frozen=True)
class Scores:
    """What went into a softmax, and what was done to its result since."""

    raw: Tensor
    raw_version: int | None
    result: weakref.ref[Tensor]
    result_version: int | None
    shaped: tuple[Call, ...]


class RawScoresToLoss(Intervention):
    """Remembers what went into each softmax for as long as its result exists, and no longer."""

    name = "raw_scores_to_loss"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._known: dict[int, Scores] = {}
        for owner in (functional, torch, torch.special, Tensor):
            replace(owner, ("softmax",), self._softmax)
            replace(owner, FED, self._fed)
        for owner in (torch, Tensor):
            replace(owner, SHAPING, self._shaped)
        replace(Tensor, ("__getitem__",), self._shaped)

    @unseen_by_warnings
    def _softmax(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        raw = argument(args, kwargs, 0, "input")
        # A result without gradient of scores with one was made under no_grad, on purpose.
        if isinstance(raw, Tensor) and isinstance(result, Tensor) and raw.requires_grad == result.requires_grad:
            self._remember(result, raw, _version(raw), ())
        return result

    @unseen_by_warnings
    def _shaped(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        given = argument(args, kwargs, 0, "input")
        scores = self._scores_of(given)
        if scores is not None and isinstance(result, Tensor) and result is not given:
            call = (original, args[1:], {name: value for name, value in kwargs.items() if name != "input"})
            self._remember(result, scores.raw, scores.raw_version, (*scores.shaped, call))
        return result

    @unseen_by_warnings
    def _fed(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = argument(args, kwargs, 0, "input")
        scores = self._scores_of(given)
        raw = _shaped_alike(scores) if scores is not None else None
        if raw is None or raw.shape != given.shape:
            return original(*args, **kwargs)
        self.note_changed(self._watcher, original.__name__, "raw scores in place of their softmax")
        args, kwargs = with_argument(args, kwargs, 0, "input", raw.to(given.dtype))
        return original(*args, **kwargs)

    def _remember(self, result: Tensor, raw: Tensor, raw_version: int | None, shaped: tuple[Call, ...]) -> None:
        key = id(result)
        reference = weakref.ref(result, lambda gone: self._forget(key, gone))
        self._known[key] = Scores(raw, raw_version, reference, _version(result), shaped)

    def _forget(self, key: int, gone: weakref.ref[Tensor]) -> None:
        # Another tensor may have taken the place in memory, and the key, before this one was told.
        if key in self._known and self._known[key].result is gone:
            del self._known[key]

    def _scores_of(self, tensor: Any) -> Scores | None:
        """What is remembered of it, unless one of the two was written to since."""
        scores = self._known.get(id(tensor))
        if scores is None or not isinstance(tensor, Tensor) or scores.result() is not tensor:
            return None
        untouched = scores.raw_version == _version(scores.raw) and scores.result_version == _version(tensor)
        return scores if untouched else None


def _version(tensor: Tensor) -> int | None:
    """How often it was written to; torch does not count for tensors of inference mode."""
    return None if tensor.is_inference() else int(tensor._version)


def _shaped_alike(scores: Scores) -> Tensor | None:
    """The raw scores in the shape in which their softmax arrived."""
    raw = scores.raw
    for function, args, kwargs in scores.shaped:
        # A softmax's result may be dense in memory where what went into it was not: a view of that may be impossible.
        dense = raw.contiguous() if function.__name__ == "view" else raw
        raw = function(dense, *args, **kwargs)
    return raw
