"""Standing in for functions of torch that a script calls, wherever it calls them from.

Attributes of torch's modules and of `Tensor` are replaced, before the script imports anything, and stay replaced: an
intervened process ends with its run. A `TorchFunctionMode` would see the same calls. But while one is active torch
leaves its fused inference path for attention, so that even an untouched script prints other last digits; and it does
not see what torch's own functions call inside.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.watching.context import is_traced, is_transformed, unseen_by_warnings

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

# Functions of modules that were replaced: where, by what name, the original, what stands in for it.
_replaced: list[tuple[ModuleType, str, Any, Any]] = []


def replace(owner: Any, names: Sequence[str], around: Around) -> None:
    """Call `around(original, args, kwargs)` in place of functions of `owner`; names that this torch lacks are left out.

    The original is called as it is where a compiler records, and inside vmap and its like, where no value can be read.
    """
    for name in names:
        if (original := getattr(owner, name, None)) is not None:
            _replace_one(owner, name, original, around)


def _replace_one(owner: Any, name: str, original: Any, around: Around) -> None:
    @functools.wraps(original)
    @unseen_by_warnings
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if is_traced() or any(is_transformed(value) for value in args if isinstance(value, Tensor)):
            return original(*args, **kwargs)
        return around(original, args, kwargs)

    if isinstance(owner, ModuleType):
        # What a pickled model holds is looked up by these names again.
        stand_in.__module__, stand_in.__qualname__ = owner.__name__, name
        if not _replaced:
            torch.jit.script = _with_the_originals(torch.jit.script)
        _replaced.append((owner, name, original, stand_in))
    setattr(owner, name, stand_in)


def _with_the_originals(script: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript compiles from source and knows torch's functions by identity: while it works it finds those."""
    knows_frames = "_frames_up" in inspect.signature(script).parameters

    @functools.wraps(script)
    def scripted(*args: Any, **kwargs: Any) -> Any:
        if knows_frames:  # it looks for the names that the code uses in its caller's frame: one more is between now
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
        for owner, name, original, _ in _replaced:
            setattr(owner, name, original)
        try:
            return script(*args, **kwargs)
        finally:
            for owner, name, _, stand_in in _replaced:
                setattr(owner, name, stand_in)

    return scripted


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    """An argument of a call, given by position or by name."""
    if name in kwargs:
        return kwargs[name]
    return args[position] if len(args) > position else default


def with_argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, value: Any) -> Arguments:
    """The arguments of a call with one of them changed."""
    if name in kwargs or len(args) <= position:
        return args, {**kwargs, name: value}
    return (*args[:position], value, *args[position + 1 :]), kwargs
