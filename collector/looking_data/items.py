"""The same item of a dataset, read twice: does reading change what is stored?

Random streams are the same at every read, so that augmentation draws the same numbers. What is looked for is narrower
than a difference: reading one item changes one part of the dataset's memory and reading another item another part,
each further read gives another value, and with that memory put back the first value comes again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from weaklink.collector.evidence import Site
from weaklink.collector.looking_data.memory import Memory
from weaklink.collector.random_state import keep_global_streams
from weaklink.collector.watching.loaders import leaves_in
from weaklink.collector.watching.sites import UserCode


def reread(dataset: Any, code: UserCode) -> dict[str, Any]:
    """Read the first two items of a dataset again and again. It is left as the reads leave it.

    Returns:
        `equal`: whether the second read gave the first one's values. `corrupted`: whether reading changes what is
        stored, in the sense of this module. `site`: the line after which the memory had changed, where it is known.
    """
    if isinstance(dataset, IterableDataset) or len(dataset) < 2:
        return {"unread": "a stream, or fewer than two items"}
    keep = keep_global_streams(mps=False)
    memory = Memory(dataset)

    def read(number: int) -> list[Tensor]:
        keep()
        memory.rewind()
        return [tensor.detach().clone() for _, tensor in leaves_in(_as_tensors(dataset[number]))]

    first = read(0)
    here = memory.changed()
    second = read(0)
    found: dict[str, Any] = {"equal": _equal(first, second), "corrupted": False, "site": None, "items": len(dataset)}
    if found["equal"] or not here:
        return found
    third = read(0)
    memory.put_back()
    again = read(0)
    memory.put_back()
    read(1)
    there = memory.changed()
    memory.put_back()
    drifts = not _equal(second, third) and _equal(first, again)
    # One number an item is a count or a level that reading is meant to move; an item's contents are more.
    contents = all(sum(map(len, part.values())) > 1 for part in (here, there))
    found["corrupted"] = drifts and contents and bool(there) and not _overlap(here, there)
    if found["corrupted"]:
        keep()
        memory.rewind()
        site = line_that_changes(lambda: dataset[0], memory, code)
        found["site"] = site.model_dump() if site is not None else None
    return found


def line_that_changes(read: Callable[[], Any], memory: Memory, code: UserCode) -> Site | None:
    """The user's line during which the memory changed: it is compared before and after every line."""
    last: list[tuple[str, int]] = []
    found: list[Site] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = code.relative(frame.f_code.co_filename)
        if name is None or found:
            return None
        if event in ("line", "return"):
            if last and memory.changed():
                found.append(Site(file=last[-1][0], line=last[-1][1], what="what is stored changes when it is read"))
                return None
            if event == "line":
                last.append((name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read()
    finally:
        sys.settrace(before)
    if not found and last and memory.changed():
        found.append(Site(file=last[-1][0], line=last[-1][1], what="what is stored changes when it is read"))
    return found[0] if found else None


def _as_tensors(item: Any) -> Any:
    """Arrays of an item as tensors, so that they can be compared."""
    if isinstance(item, (tuple, list)):
        return [_as_tensors(part) for part in item]
    if isinstance(item, dict):
        return {key: _as_tensors(part) for key, part in item.items()}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(item, numpy.ndarray):
        try:
            return torch.from_numpy(item.copy())
        except (TypeError, ValueError):
            return None
    return item


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(first, second, strict=True)
    )


def _overlap(first: dict[int, Tensor], second: dict[int, Tensor]) -> bool:
    return any(
        number in second and bool(torch.isin(positions, second[number]).any()) for number, positions in first.items()
    )
