"""No dropout: what it keeps a run from fitting, if it keeps it from anything, can be fitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

FUNCTIONAL = ("dropout", "dropout1d", "dropout2d", "dropout3d")
ALPHA = ("alpha_dropout", "feature_alpha_dropout")  # these do not drop unless they are told that it is training
PLAIN = ("dropout", "feature_dropout", *ALPHA)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class WithoutDropout(Intervention):
    """Every dropout draws its numbers and drops nothing, so that the run's random stream is what it was."""

    name = "without_dropout"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(functional, (*FUNCTIONAL, *ALPHA), self._functional)
        replace(torch, (*PLAIN, *(f"{name}_" for name in PLAIN)), self._plain)
        replace(functional, ("scaled_dot_product_attention",), self._attention)
        for owner in (torch, torch._VF):
            replace(owner, RECURRENT, self._recurrent)

    @unseen_by_warnings
    def _functional(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        training = argument(args, kwargs, 2, "training", original.__name__ not in ALPHA)
        p = argument(args, kwargs, 1, "p", 0.5)
        in_place = bool(argument(args, kwargs, 3, "inplace", False))
        return self._pass(original, args, kwargs, bool(training) and float(p) > 0, in_place)

    @unseen_by_warnings
    def _plain(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        active = bool(argument(args, kwargs, 2, "train", False)) and float(argument(args, kwargs, 1, "p", 0.0)) > 0
        return self._pass(original, args, kwargs, active, original.__name__.endswith("_"))

    def _pass(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], active: bool, in_place: bool
    ) -> Any:
        given = argument(args, kwargs, 0, "input")
        if not active or not isinstance(given, Tensor) or not given.numel():
            return original(*args, **kwargs)
        with torch.no_grad():
            scratch, named = with_argument(args, kwargs, 0, "input", given.clone() if in_place else given)
            original(*scratch, **named)
        self.note_changed(self._watcher, original.__name__, "dropout passed its input on")
        # A tensor of its own, as dropout answers: what the script writes into it must not reach the input.
        return given if in_place else given.clone()

    @unseen_by_warnings
    def _attention(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        if not float(argument(args, kwargs, 4, "dropout_p", 0.0)) > 0:
            return result
        self.note_changed(self._watcher, original.__name__, "attention dropped nothing")
        args, kwargs = with_argument(args, kwargs, 4, "dropout_p", 0.0)
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _recurrent(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """By position: ..., number of layers, dropout, train, ... The dropout is the only float among the arguments."""
        result = original(*args, **kwargs)
        position = next((number for number, value in enumerate(args) if isinstance(value, float)), None)
        if position is None or not (args[position] > 0 and args[position - 1] > 1 and args[position + 1]):
            return result
        self.note_changed(self._watcher, original.__name__, "dropout between layers dropped nothing")
        return original(*args[:position], 0.0, *args[position + 1 :], **kwargs)
