"""Functions of torch that are wrapped while a watcher is installed, and given back as they were."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weaklink.collector.watching.context import unseen_by_warnings


@dataclass
class _Layer:
    """One wrapper of ours: what it wraps, and whether its owner had that itself or inherited it."""

    wrapper: Any
    original: Any
    own: bool
    removed: bool = False


def wrap(owner: Any, name: str, around: Callable[..., Any], passes: Callable[[], bool]) -> Callable[[], None]:
    """Call `around(original, ...)` in place of a function; answers what gives it back.

    Args:
        owner: A module or a class.
        name: The attribute to replace.
        around: Is given the original and the call's arguments.
        passes: Whether the call goes through unseen; asked at every call.
    """
    own = name in owner.__dict__  # otherwise inherited: deleting ours brings it back
    original = owner.__dict__[name] if own else getattr(owner, name)

    @functools.wraps(original)
    @unseen_by_warnings
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if passes():
            return original(*args, **kwargs)
        return around(original, *args, **kwargs)

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
