"""Rows in the order in which they are stored, so that what stands beside them can be told.

Read from the loader's dataset, below torch's own subsets; or, where the script indexes tensors itself, from the
tensors in memory that the batch was taken from, found by their contents.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from weaklink.collector.watching.loaders import LoaderEntry, leaves_in
from weaklink.collector.watching.pairs import Chunk

ROWS = 4096
RUNS = 32
READING_SECONDS = 1.0
COLLATED = 256
# A tensor in memory is searched for rows of the batch up to this many entries.
SEARCHED_ENTRIES = 50_000_000
SEARCHED_ROWS = 64


@dataclass
class Source:
    """Rows as they are stored.

    Attributes:
        numbers: Their places, ascending; all of `total` where they are that many.
        inputs: (rows, ...) each.
        targets: (rows, ...).
        kind: "dataset" or "memory".
        in_order: Whether the script reads neighbouring rows one after the other, as a stream.
    """

    numbers: list[int]
    total: int
    inputs: list[Tensor]
    targets: Tensor
    kind: str
    in_order: bool

    @property
    def whole(self) -> bool:
        return len(self.numbers) == self.total


def base_of(dataset: Any) -> Any:
    """The dataset below torch's own subsets (anything that has a `dataset` and the `indices` it takes of it)."""
    for _ in range(8):
        inner = getattr(dataset, "dataset", None)
        if inner is None or not hasattr(dataset, "indices") or not hasattr(inner, "__getitem__"):
            return dataset
        dataset = inner
    return dataset


def from_dataset(loader: LoaderEntry, chunk: Chunk) -> Source | None:
    """Items of the loader's dataset in their own order, put together as the loader does it."""
    alive = loader.parts()
    if alive is None or isinstance(alive[0], IterableDataset):
        return None
    dataset, collate = base_of(alive[0]), alive[1]
    try:
        total = len(dataset)
    except Exception:  # a stream, or of the user's own making
        return None
    inputs: list[list[Tensor]] = []
    targets: list[Tensor] = []
    read: list[int] = []
    until = time.process_time() + READING_SECONDS
    for numbers in _portions(total):
        batch = collate([dataset[number] for number in numbers])
        found = _sides(loader, batch, len(numbers), chunk)
        if found is None:
            return None
        inputs.append(found[0])
        targets.append(found[1])
        read += numbers
        if time.process_time() > until:
            break
    if not read:
        return None
    in_order = loader.sampler == "SequentialSampler" or _neighbours(chunk.indices or [])
    joined = [torch.cat(list(parts)) for parts in zip(*inputs, strict=True)]
    return Source(read, total, joined, torch.cat(targets), "dataset", in_order)


def _portions(total: int) -> Iterator[list[int]]:
    """All places where they are few; else runs of neighbouring ones, spread evenly, the first run first."""
    if total <= ROWS:
        yield from (list(range(start, min(start + COLLATED, total))) for start in range(0, total, COLLATED))
        return
    length = ROWS // RUNS
    for run in range(RUNS):
        start = run * (total - length) // (RUNS - 1)
        yield list(range(start, start + length))


def _sides(loader: LoaderEntry, batch: Any, rows: int, chunk: Chunk) -> tuple[list[Tensor], Tensor] | None:
    leaves = [(path, tensor) for path, tensor in leaves_in(batch) if tensor.dim() and len(tensor) == rows]
    beside = [pair for pair in leaves if pair[0] == loader.target_path]
    inputs = [tensor for path, tensor in leaves if path in loader.input_paths]
    if not inputs:  # computed from the batch: what looks like it
        shapes = [tuple(tensor.shape[1:]) for tensor in chunk.inputs]
        inputs = [tensor for path, tensor in leaves if tuple(tensor.shape[1:]) in shapes and path != loader.target_path]
    if not beside:
        beside = [pair for pair in leaves if not any(pair[1] is tensor for tensor in inputs)]
    return (inputs, beside[-1][1]) if inputs and beside else None


def from_memory(chunk: Chunk) -> Source | None:
    """Tensors of the process that the chunk's rows and targets were taken from at the same places."""
    if chunk.target is None:
        return None
    tensors = _tensors()
    places: list[int] | None = None
    inputs: list[Tensor] = []
    for wanted in chunk.inputs:
        for tensor in tensors:
            if places is None:
                found = _found(tensor, wanted)
                if found is not None:
                    places = found
                    inputs.append(tensor)
                    break
            elif len(tensor) == len(inputs[0]) and _same(tensor, places, wanted):
                inputs.append(tensor)
                break
    if places is None:
        return None
    targets = next((t for t in tensors if len(t) == len(inputs[0]) and _same_target(t, places, chunk.target)), None)
    if targets is None:
        return None
    total, in_order = len(targets), _neighbours(places)
    numbers = [number for portion in _portions(total) for number in portion]
    kept = slice(None) if len(numbers) == total else torch.tensor(numbers, device="cpu")
    rows = [tensor.detach()[kept] for tensor in inputs]
    return Source(numbers, total, rows, targets.detach()[kept], "memory", in_order)


def _neighbours(places: list[int]) -> bool:
    return len(places) > 1 and all(right - left == 1 for left, right in pairwise(places))


def _tensors() -> list[Tensor]:
    """Plain tensors on the host, each memory once."""
    found: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    for thing in gc.get_objects():
        if not issubclass(type(thing), Tensor) or type(thing).__name__ == "Parameter":
            continue
        if thing.device.type != "cpu" or thing.layout != torch.strided or not thing.dim() or thing.is_nested:
            continue
        if len(thing) > 1 and thing.numel() <= SEARCHED_ENTRIES:
            found.setdefault((thing.data_ptr(), tuple(thing.shape)), thing)
    return sorted(found.values(), key=len, reverse=True)


def _found(tensor: Tensor, wanted: Tensor) -> list[int] | None:
    """Where the first rows of `wanted` stand in a longer tensor of the same row shape; None where one does not."""
    if tensor.shape[1:] != wanted.shape[1:] or len(tensor) <= len(wanted):
        return None
    if tensor.is_floating_point() != wanted.is_floating_point():
        return None
    flat, rows = tensor.detach().reshape(len(tensor), -1), wanted.reshape(len(wanted), -1)
    first = flat[:, 0].to(rows.dtype)
    places: list[int] = []
    for row in rows[:SEARCHED_ROWS]:
        alike = (first == row[0]).nonzero().flatten()
        exact = alike[(flat[alike].to(rows.dtype) == row).all(dim=1)]
        if not len(exact):
            return None
        places.append(int(exact[0]))
    return places


def _same(tensor: Tensor, places: list[int], wanted: Tensor) -> bool:
    return tensor.shape[1:] == wanted.shape[1:] and torch.equal(
        tensor.detach()[places].to(wanted.dtype), wanted[: len(places)]
    )


def _same_target(tensor: Tensor, places: list[int], wanted: Tensor) -> bool:
    rows = wanted[: len(places)].reshape(len(places), -1)
    if tensor.numel() != len(tensor) * rows.shape[1]:
        return False
    return torch.equal(tensor.detach().reshape(len(tensor), -1)[places].to(rows.dtype), rows)
