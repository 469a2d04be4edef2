"""Arrays and tensors that an object holds, as they are now: compared with later, and put back."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.random_state import keep_generator

OBJECT_LIMIT = 20_000
BYTE_LIMIT = 64 * 1024 * 1024


class Memory:
    """Copies of every array and tensor below an object, and the states of its random generators."""

    def __init__(self, owner: Any) -> None:
        self._kept: list[tuple[Tensor, Tensor]] = []
        # How often each was written to; None for an array, which does not count that.
        self._writes: list[int | None] = []
        self._generators: list[Callable[[], None]] = []
        self.complete = True
        size = 0
        seen_memory: set[int] = set()
        for thing in _below(owner, self):
            put_back = keep_generator(thing)
            if put_back is not None:
                self._generators.append(put_back)
            values = as_tensor(thing)
            if values is None or values.data_ptr() in seen_memory:
                continue
            size += values.numel() * values.element_size()
            if size > BYTE_LIMIT:
                self.complete = False
                break
            seen_memory.add(values.data_ptr())
            self._kept.append((values, values.clone()))
            self._writes.append(values._version if issubclass(type(thing), Tensor) else None)

    def undo_writes(self) -> bool:
        """Put back what was written to since; whether that changed anything. Quick where nothing was."""
        found = False
        for number, (now, before) in enumerate(self._kept):
            writes = self._writes[number]
            if writes == now._version or (writes is None and torch.allclose(now, before, 0.0, 0.0, equal_nan=True)):
                continue
            found = found or not torch.allclose(now, before, 0.0, 0.0, equal_nan=True)
            now.copy_(before)
            self._writes[number] = now._version if writes is not None else None
        return found

    def changed(self) -> dict[int, Tensor]:
        """Which entries of which array differ from the copy: flat positions, by the array's number."""
        found: dict[int, Tensor] = {}
        for number, (now, before) in enumerate(self._kept):
            differs = (now != before) & ~((now != now) & (before != before))
            if bool(differs.any()):
                found[number] = differs.flatten().nonzero().flatten()
        return found

    def put_back(self) -> None:
        """Everything as it was when the copies were taken."""
        for now, before in self._kept:
            now.copy_(before)
        self.rewind()

    def rewind(self) -> None:
        """The random generators alone as they were."""
        for restore in self._generators:
            restore()


def as_tensor(thing: Any) -> Tensor | None:
    """A writable plain tensor over the memory of a tensor or a numpy array; None for anything else."""
    if issubclass(type(thing), Tensor):
        plain = thing.layout == torch.strided and not (thing.is_meta or thing.is_nested)
        return thing.detach() if plain and thing.numel() else None
    numpy = sys.modules.get("numpy")
    if numpy is None or type(thing) is not numpy.ndarray or not thing.size or not thing.flags.writeable:
        return None
    try:
        return torch.from_numpy(thing)
    except (TypeError, ValueError):  # a type that torch has not, or negative strides
        return None


def _below(owner: Any, memory: Memory) -> Any:
    """The object, and what it holds in attributes, sequences and mappings, nearest first; each thing once."""
    queue: deque[Any] = deque([owner])
    seen = {id(owner)}
    while queue:
        thing = queue.popleft()
        yield thing
        for inner in _held(thing):
            if id(inner) in seen or isinstance(inner, (str, bytes, int, float, bool, type(None), type)):
                continue
            if len(seen) >= OBJECT_LIMIT:
                memory.complete = False
                return
            seen.add(id(inner))
            queue.append(inner)


def _held(thing: Any) -> list[Any]:
    if isinstance(thing, (list, tuple)):
        return list(thing)
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (Tensor, random.Random)) or callable(getattr(thing, "__array__", None)):
        return []
    inside = getattr(thing, "__dict__", None)
    found = list(inside.values()) if isinstance(inside, dict) and not isinstance(thing, type(sys)) else []
    bound = getattr(thing, "__self__", None)  # a method kept as a transform belongs to an object
    return found if bound is None or isinstance(bound, type(sys)) else [*found, bound]
