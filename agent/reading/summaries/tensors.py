"""Tensors and their numbers, wherever a checkpoint keeps them: shape, type, norm, what is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from weaklink.agent.reading.summaries.numbers import BFLOAT16, Kind, Statistics, kind, short, values_of
from weaklink.agent.reading.summaries.source import Readable, chunks

MOST_BYTES = 40 * 2**20  # of numbers, over all tensors of one file

KINDS = {
    "float64": kind("float64", "d"), "float32": kind("float32", "f"), "float16": kind("float16", "e"),
    "bfloat16": BFLOAT16, "int64": kind("int64", "q"), "int32": kind("int32", "i"), "int16": kind("int16", "h"),
    "int8": kind("int8", "b"), "uint8": kind("uint8", "B"), "bool": kind("bool", "B"),
    "uint16": kind("uint16", "H"), "uint32": kind("uint32", "I"), "uint64": kind("uint64", "Q"),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor as a file describes it.

    Attributes:
        shape: Sizes.
        dtype: By torch's name, without "torch.".
        offset: Its first entry, in entries from the beginning of its storage.
        strides: In entries; None where it lies one entry after the other.
        storage: What its numbers are kept under.
    """

    shape: tuple[int, ...]
    dtype: str
    offset: int
    strides: tuple[int, ...] | None
    storage: str

    @property
    def numel(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether its entries fill one stretch of the storage, each once, in whatever order."""
        if self.strides is None:
            return True
        if len(self.strides) != len(self.shape) or any(size < 0 for size in self.shape):
            return False
        wanted = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size == 1:
                continue
            if stride != wanted:
                return False
            wanted *= size
        return True


@dataclass
class Reader:
    """Reads the numbers of tensors until `MOST_BYTES` are used up.

    Args:
        open_at: Opens a storage at a byte: the stream, closed by whoever asked.
        little: Whether numbers are stored with the lowest byte first.
    """

    open_at: Callable[[str, int], AbstractContextManager[Readable]]
    little: bool = True
    left: int = field(default=MOST_BYTES)

    def statistics(self, tensor: Tensor) -> Statistics | str:
        """Over all entries of a tensor; why not, where they are not read.

        Raises:
            ValueError, KeyError, OSError: The storage is not there.
        """
        entry = KINDS.get(tensor.dtype)
        if entry is None:
            return f"entries of {tensor.dtype} are not read"
        if tensor.numel < 0 or tensor.offset < 0:
            return "damaged: a negative size"
        if not tensor.is_dense:
            return "a view with gaps or repeats, not read"
        wanted = tensor.numel * entry.size
        if wanted > self.left:
            return "too large to be read here"
        self.left -= wanted
        found = Statistics(distinct=None)
        entry = Kind(entry.name, entry.code, entry.size, self.little)
        with self.open_at(tensor.storage, tensor.offset * entry.size) as file:
            for data in chunks(file, wanted, wanted, entry.size):
                found.add(values_of(data, entry), found.count)
        if found.count < tensor.numel:
            return f"damaged: {found.count} of {tensor.numel} entries are there"
        return found

    def text(self, tensor: Tensor) -> str:
        """A tensor in one line; its value where it has one entry."""
        told = f"{tensor.dtype} {list(tensor.shape)}"
        try:
            found = self.statistics(tensor)
        except (ValueError, KeyError, OSError) as error:
            return f"{told} not read: {error}"
        if isinstance(found, str):
            return f"{told} {found}"
        if tensor.numel == 0:
            return f"{told} empty"
        if tensor.numel == 1:
            return f"{told} value {short(found.mean) if found.finite else 'not finite'}"
        constant = f", constant {short(found.least)}" if found.finite and found.least == found.most else ""
        return f"{told} norm {short(found.norm)}{constant}{found.bad_text()}"
