"""Working on a user's live system and leaving no trace: everything a training step can change is put back.

Below `preserved` the real model and the real optimizer may be trained, broken, taken apart. Afterwards every object is
the one it was, at the place where it was, with the bits that it had, also when the body raised.
"""

from __future__ import annotations

import functools
import numbers
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.random_state import keep_generator, keep_global_streams
from weaklink.collector.storages import StorageCopies
from weaklink.collector.tensor_state import TensorState
from weaklink.collector.tensors import without_collection

# Values that cannot change in place, or whose inside is nobody's state. The first set is a fast path by exact type.
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type, types.FunctionType, torch.dtype})
_ATOM_KINDS = (
    *(numbers.Number, str, bytes, Enum, type, range, slice, torch.dtype, torch.device, torch.layout),
    *(torch.memory_format, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(functools.partial, weakref.ref),
)
_UNSET = object()
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


@dataclass
class Kept:
    """What was saved.

    Attributes:
        copies: `id` of a parameter, buffer or other tensor -> its values at the beginning. Not to be written to.
        bytes: Memory that the copies take; tensors that share memory count once.
        on_host: Some copies went to the host, because the device lacked room.
        put_back: Undo what was done so far, without leaving; the copies stay for the end.
    """

    copies: dict[int, Tensor]
    bytes: int
    on_host: bool
    put_back: Callable[[], None]


@contextmanager
def preserved(
    modules: Sequence[nn.Module], optimizers: Sequence[Any] = (), values: Sequence[Any] = ()
) -> Iterator[Kept]:
    """Whatever the body does to these, it is undone at its end.

    Put back as the same objects with the same bits: parameters, buffers, gradients, tensors and containers in plain
    attributes, modes, hooks, `requires_grad`, classes, submodules, optimizer state and groups, generators, and the
    global random streams. What objects of other classes hold inside, kept in some attribute, is not looked into: see
    `hidden_state` for optimizers. Tensors without values yet (meta, lazy) stay without.

    Args:
        modules: Models, and losses that are modules; modules they hold in plain attributes or lists are followed.
        optimizers: Optimizers; those that they hold themselves are followed.
        values: Tensors, or containers of them, that the body uses: inputs and targets.

    Raises:
        RuntimeError: Torch could not copy a tensor. The body was not entered.
    """
    with _undisturbed():
        snapshot = _Snapshot([*modules, *optimizers, *values])
    try:
        yield snapshot.kept
    finally:
        snapshot.restore()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Builds no graph and calls no override of a tensor subclass; does not stop to collect garbage."""
    with without_collection(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        yield


def hidden_state(optimizer: Any) -> list[str]:
    """Attributes of an optimizer that `preserved` cannot put back; empty where a step can be undone.

    An attribute is named when it holds, itself or in a container, an object that is neither a number, a text, a
    function, a class, a tensor, an array, a random generator, a module nor an optimizer. Of an object that is no torch
    optimizer nothing is known: its class is named.
    """
    if not isinstance(optimizer, Optimizer):
        return [type(optimizer).__qualname__]
    return [name for name, value in _attributes(optimizer) if _is_opaque(value, {id(optimizer)})]


def _is_opaque(value: Any, seen: set[int]) -> bool:
    if type(value) in _ATOMS or id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, Optimizer):
        return any(_is_opaque(inner, seen) for _, inner in _attributes(value))
    if isinstance(value, _CONTAINERS):
        return any(_is_opaque(inner, seen) for inner in _members(value))
    known = isinstance(value, (Tensor, nn.Module, *_ATOM_KINDS)) or _is_array(value)
    return not known and keep_generator(value) is None


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    return [*vars(thing).items(), *((name, held) for name, held in _slots(thing) if held is not _UNSET)]


def _slots(thing: Any) -> list[tuple[str, Any]]:
    """The slots and what they hold; `__dict__` knows nothing of them."""
    found: list[tuple[str, Any]] = []
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                found.append((name, getattr(thing, name, _UNSET)))
    return found


def _members(container: Any) -> Iterable[Any]:
    return [*container.keys(), *container.values()] if isinstance(container, dict) else container


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


class _Snapshot:
    """Everything reachable from some roots through modules, optimizers, containers and tensors."""

    def __init__(self, roots: list[Any]) -> None:
        self._containers: list[tuple[Any, Any]] = []
        self._classes: list[tuple[Any, type]] = []
        self._slots: list[tuple[Any, str, Any]] = []
        self._tensors: list[TensorState] = []
        self._put_back: list[Callable[[], None]] = []
        self._walk(roots)
        strided = [state.tensor for state in self._tensors if state.strided]
        self._copies = StorageCopies(strided)
        others = [state for state in self._tensors if state.clone is not None]
        copies = {id(tensor): self._copies.copy_of(tensor) for tensor in strided}
        copies.update({id(state.tensor): state.clone for state in others if state.clone is not None})
        size = sum(state.clone.numel() * state.clone.element_size() for state in others if state.clone is not None)
        self.kept = Kept(copies, self._copies.bytes + size, self._copies.on_host, self.restore)
        self._restore_streams = keep_global_streams(mps=any(tensor.device.type == "mps" for tensor in strided))

    def _walk(self, roots: list[Any]) -> None:
        open_ends, seen = list(roots), set()
        while open_ends:
            value = open_ends.pop()
            if type(value) in _ATOMS or id(value) in seen:
                continue
            seen.add(id(value))  # stays valid: what is found here is held until the end
            open_ends.extend(self._take(value))

    def _take(self, value: Any) -> Iterable[Any]:
        """Note down one object; answers what it leads to."""
        if isinstance(value, Tensor):
            state = TensorState(value)
            self._tensors.append(state)
            return state.leads_to
        if isinstance(value, _CONTAINERS):
            if not isinstance(value, (tuple, frozenset)):
                self._containers.append((value, _shallow_copy(value)))
            return _members(value)
        if isinstance(value, (nn.Module, Optimizer)):
            self._classes.append((value, type(value)))
            slots = [(value, name, held) for name, held in _slots(value)]
            self._slots.extend(slots)
            return [vars(value), *(held for _, _, held in slots), *self._take_scripted(value)]
        if _is_array(value):
            before = value.copy()
            self._put_back.append(lambda: value.__setitem__(..., before))
        elif (put_back := keep_generator(value)) is not None:
            self._put_back.append(put_back)
        return ()

    def _take_scripted(self, module: Any) -> list[Any]:
        """A scripted module keeps its mode, parts and tensors where `vars` does not show them."""
        if not isinstance(module, torch.jit.ScriptModule):
            return []
        self._slots.append((module, "training", module.training))
        return [*module.children(), *module.parameters(recurse=False), *module.buffers(recurse=False)]

    def restore(self) -> None:
        with _undisturbed():
            self._restore()

    def _restore(self) -> None:
        for thing, kind in self._classes:
            if type(thing) is not kind:  # a lazy module that met data, a parametrization that was added
                thing.__class__ = kind
        for container, before in self._containers:
            _refill(container, before)
        for thing, name, held in self._slots:
            if held is not _UNSET:
                setattr(thing, name, held)
            elif hasattr(thing, name):
                delattr(thing, name)
        for state in self._tensors:
            state.restore_place()
        self._copies.restore()
        for state in self._tensors:
            state.restore_values()
        for state in self._tensors:
            state.restore_role()
        for put_back in self._put_back:
            put_back()
        self._restore_streams()


def _shallow_copy(container: Any) -> Any:
    # By the built-in types: a user's own `copy` may do anything.
    return next(kind(container) for kind in (dict, set, list) if isinstance(container, kind) or kind is list)


def _refill(container: Any, before: Any) -> None:
    """Give a container the members that it had, in their order; one that still has them is not touched."""
    if isinstance(container, dict):
        if _same(container, before) and _same(container.values(), before.values()):
            return
        # Of the base class: a user's own may count, log or refuse. An ordered dictionary keeps a list of its own.
        base: Any = OrderedDict if isinstance(container, OrderedDict) else dict
        base.clear(container)
        for key, value in before.items():
            base.__setitem__(container, key, value)
    elif isinstance(container, set):
        if container != before:
            set.clear(container)
            set.update(container, before)
    elif not _same(container, before):
        kind: Any = list if isinstance(container, list) else deque
        kind.clear(container)
        kind.extend(container, before)


def _same(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))
