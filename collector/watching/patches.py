"""Functions of torch that are wrapped while a watcher is installed, and given back as they were."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from weaklink.collector.errors import WeaklinkError
from weaklink.collector.watching.context import unseen_by_warnings


@dataclass
class _Layer:
    """One wrapper of ours: what it wraps, and whether its owner had that itself or inherited it."""

    wrapper: Any
    original: Any
    own: bool
    removed: bool = False


class _Told:
    """The original, remembering what came of its call: that is handed on where `around` fails."""

    __slots__ = ("called", "error", "original", "value")

    def __init__(self, original: Any) -> None:
        self.original = original
        self.called = False
        self.error: BaseException | None = None
        self.value: Any = None

    @unseen_by_warnings
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        try:
            self.value = self.original(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        return self.value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


def wrap(
    owner: Any,
    name: str,
    around: Callable[..., Any],
    passes: Callable[[], bool],
    failed: Callable[[Exception], None] | None = None,
) -> Callable[[], None]:
    """Call `around(original, ...)` in place of a function; answers what gives it back.

    Args:
        owner: A module or a class.
        name: The attribute to replace.
        around: Is given the original and the call's arguments.
        passes: Whether the call goes through unseen; asked at every call.
        failed: Told what `around` raises of its own, which the caller then never sees. Without it the caller does.
    """
    own = name in owner.__dict__  # otherwise inherited: deleting ours brings it back
    original = owner.__dict__[name] if own else getattr(owner, name)

    @functools.wraps(original)
    @unseen_by_warnings
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if passes():
            return original(*args, **kwargs)
        if failed is None or torch.compiler.is_compiling():
            return around(original, *args, **kwargs)
        told = _Told(original)
        try:
            return around(told, *args, **kwargs)
        except Exception as error:
            if error is told.error or isinstance(error, WeaklinkError):
                raise
            failed(error)
            if told.error is not None:
                raise told.error from None
        return told.value if told.called else original(*args, **kwargs)

    layer: _Layer = _Layer(wrapper, original, own)
    wrapper.__dict__["weaklink"] = layer
    setattr(owner, name, wrapper)
    return functools.partial(_give_back, owner, name, layer)


def _give_back(owner: Any, name: str, layer: _Layer) -> None:
    layer.removed = True
    if owner.__dict__.get(name) is not layer.wrapper:
        return  # wrapped again since, by the user or by a watcher that looks on: theirs stays
    lowest = layer
    while (below := _layer_of(lowest.original)) is not None and below.removed:
        lowest = below
    setattr(owner, name, lowest.original) if lowest.own else delattr(owner, name)


def _layer_of(function: Any) -> _Layer | None:
    # `functools.wraps` copies attributes: a wrapper of the user's may carry that of ours.
    found = getattr(function, "weaklink", None)
    return found if isinstance(found, _Layer) and found.wrapper is function else None
