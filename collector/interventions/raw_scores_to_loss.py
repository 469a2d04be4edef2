"""Feed the loss the scores it expects: the one change that tells one kind taken for another from everything else."""

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
# Which results each of them takes the raw scores of, because it applies that function, or its logarithm, itself.
FED = {
    "cross_entropy": ("softmax",),
    "log_softmax": ("softmax",),
    "binary_cross_entropy_with_logits": ("sigmoid",),
}
# What takes log-probabilities.
LOGARITHMS = ("nll_loss", "kl_div")


@dataclass(frozen=True)
class Scores:
    """What went into a softmax or a sigmoid, and what was done to its result since.

    Attributes:
        kind: "softmax" or "sigmoid".
        logarithm: The logarithm of the result, computed from the raw scores and as the result was.
    """

    kind: str
    raw: Tensor
    raw_version: int | None
    result: weakref.ref[Tensor]
    result_version: int | None
    logarithm: Callable[[Tensor], Tensor]
    shaped: tuple[Call, ...]


class RawScoresToLoss(Intervention):
    """Remembers what went into each softmax and sigmoid for as long as its result exists, and no longer."""

    name = "raw_scores_to_loss"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._known: dict[int, Scores] = {}
        for owner in (functional, torch, torch.special, Tensor):
            replace(owner, ("softmax",), self._softmax)
            replace(owner, ("sigmoid", "expit"), self._sigmoid)
            replace(owner, tuple(FED), self._fed)
        # Not torch.kl_div besides: the function above it would be answered twice.
        replace(functional, LOGARITHMS, self._wants_logarithms)
        for owner in (torch, Tensor):
            replace(owner, SHAPING, self._shaped)
        replace(Tensor, ("__getitem__",), self._shaped)

    @unseen_by_warnings
    def _softmax(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        dim = argument(args, kwargs, 1, "dim")
        self._made("softmax", result, args, kwargs, lambda raw: torch.log_softmax(raw, _along(raw, dim)))
        return result

    @unseen_by_warnings
    def _sigmoid(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        self._made("sigmoid", result, args, kwargs, functional.logsigmoid)
        return result

    def _made(
        self,
        kind: str,
        result: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        logarithm: Callable[[Tensor], Tensor],
    ) -> None:
        raw = argument(args, kwargs, 0, "input")
        # A result without gradient of scores with one was made under no_grad, on purpose.
        if isinstance(raw, Tensor) and isinstance(result, Tensor) and raw.requires_grad == result.requires_grad:
            self._remember(kind, result, raw, _version(raw), logarithm, ())

    @unseen_by_warnings
    def _shaped(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        given = argument(args, kwargs, 0, "input")
        scores = self._scores_of(given)
        if scores is not None and isinstance(result, Tensor) and result is not given:
            call = (original, args[1:], {name: value for name, value in kwargs.items() if name != "input"})
            shaped = (*scores.shaped, call)
            self._remember(scores.kind, result, scores.raw, scores.raw_version, scores.logarithm, shaped)
        return result

    @unseen_by_warnings
    def _fed(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = argument(args, kwargs, 0, "input")
        scores = self._scores_of(given)
        if scores is None or scores.kind not in FED[original.__name__]:
            return original(*args, **kwargs)
        raw = _shaped_alike(scores, scores.raw)
        if raw.shape != given.shape:
            return original(*args, **kwargs)
        self.note_changed(self._watcher, original.__name__, f"raw scores in place of their {scores.kind}")
        args, kwargs = with_argument(args, kwargs, 0, "input", raw.to(given.dtype))
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _wants_logarithms(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = argument(args, kwargs, 0, "input")
        if not isinstance(given, Tensor) or not given.is_floating_point() or given.is_meta:
            return original(*args, **kwargs)
        scores, name = self._scores_of(given), original.__name__
        if scores is not None:
            other = _shaped_alike(scores, scores.logarithm(scores.raw))
            how = f"the logarithm of the {scores.kind} in its place"
        # What is above zero is no log-probability. Once seen, so are the scores of every later call.
        elif given.requires_grad and (name in self.report.changed or bool((given > 0).any())):
            classes = 1 if name == "nll_loss" and given.dim() > 1 else -1
            other, how = torch.log_softmax(given, classes), "log-softmax of the raw scores in their place"
        else:
            return original(*args, **kwargs)
        if other.shape != given.shape:
            return original(*args, **kwargs)
        self.note_changed(self._watcher, name, how)
        args, kwargs = with_argument(args, kwargs, 0, "input", other.to(given.dtype))
        return original(*args, **kwargs)

    def _remember(
        self,
        kind: str,
        result: Tensor,
        raw: Tensor,
        raw_version: int | None,
        logarithm: Callable[[Tensor], Tensor],
        shaped: tuple[Call, ...],
    ) -> None:
        key = id(result)
        reference = weakref.ref(result, lambda gone: self._forget(key, gone))
        self._known[key] = Scores(kind, raw, raw_version, reference, _version(result), logarithm, shaped)

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


def _along(raw: Tensor, dim: int | None) -> int:
    """The dimension of a softmax: torch's functional one chooses where none was named."""
    return dim if dim is not None else 0 if raw.dim() in (0, 1, 3) else 1


def _shaped_alike(scores: Scores, values: Tensor) -> Tensor:
    """Values of the raw scores' shape in the shape in which their softmax arrived."""
    for function, args, kwargs in scores.shaped:
        # A softmax's result may be dense in memory where what went into it was not: a view of that may be impossible.
        dense = values.contiguous() if function.__name__ == "view" else values
        values = function(dense, *args, **kwargs)
    return values
