"""Copies of what went into a model and of what was asked for, row by row, within a budget."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weaklink.collector.evidence import Site

# What is kept of each phase, all models together.
ROW_LIMIT = 4096
BYTE_LIMIT = 8 * 1024 * 1024
# A model may be given its inputs in several tensors (an image and a table): that many are kept.
INPUT_LIMIT = 4


@dataclass
class Chunk:
    """The rows of one call of a model. All tensors are copies on the host, floating ones in float32.

    Attributes:
        call: Number of the root call, from 1.
        step: Step during or before which it was made, from 1.
        loader: Serial number of the data loader whose batch it was, where one gave it.
        indices: Numbers of the rows in the loader's dataset, where they were drawn in this process.
        inputs: (rows, ...) each; integers keep their type (token ids, categories).
        target: (rows, ...), or None where none is known.
        output: (rows, ...), or None where the model answers with no row for each row.
    """

    call: int
    step: int
    loader: int | None
    indices: list[int] | None
    inputs: list[Tensor]
    target: Tensor | None
    output: Tensor | None

    @property
    def rows(self) -> int:
        return len(self.inputs[0])

    def contents(self) -> list[bytes]:
        """Each row's own bytes, all inputs together."""
        return [b"".join(row) for row in zip(*(_row_bytes(tensor.contiguous()) for tensor in self.inputs), strict=True)]


@dataclass
class Pairs:
    """The rows that one model was given, in the order in which it was given them.

    Attributes:
        root: Serial number of the model (`RootEntry.serial`).
        site: Where the user called it first.
    """

    root: int
    site: Site | None = None
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)

    def alike(self) -> list[Chunk]:
        """The chunks whose tensors have the first one's row shapes: sequences of another length are left out."""
        return [chunk for chunk in self.chunks if _shape(chunk) == _shape(self.chunks[0])]

    def inputs(self) -> list[Tensor]:
        """Each input of the model over all alike rows: (rows, ...)."""
        chunks = self.alike()
        return [torch.cat(list(parts)) for parts in zip(*(chunk.inputs for chunk in chunks), strict=True)]

    def targets(self) -> Tensor | None:
        """The targets of the alike rows, (rows, ...); None where one chunk has none, or another shape."""
        return _joined(chunk.target for chunk in self.alike())

    def outputs(self) -> Tensor | None:
        """The model's answers to the alike rows, as it was at each of those calls."""
        return _joined(chunk.output for chunk in self.alike())

    def indices(self) -> list[int] | None:
        """Numbers of the alike rows in the loader's dataset; None where one chunk's are not known."""
        found: list[int] = []
        for chunk in self.alike():
            if chunk.indices is None:
                return None
            found += chunk.indices
        return found


class Budget:
    """How many rows and bytes may still be copied in one phase."""

    def __init__(self) -> None:
        self.rows = ROW_LIMIT
        self.bytes = BYTE_LIMIT

    @property
    def spent(self) -> bool:
        return self.rows <= 0 or self.bytes <= 0

    def copy(self, tensors: list[Tensor], rows: int) -> list[Tensor]:
        """Copies of the first rows of each tensor, as many as the budget has room for; none where it has not."""
        size = sum(tensor[:1].numel() * max(tensor.element_size(), 4) for tensor in tensors)
        rows = min(rows, self.rows, self.bytes // max(size, 1))
        if rows < 1:
            self.bytes = 0  # one row is too large: the next would be as large
            return []
        self.rows -= rows
        self.bytes -= rows * size
        return [host_copy(tensor, rows) for tensor in tensors]


def host_copy(tensor: Tensor, rows: int) -> Tensor:
    """A copy of the first rows on the host; floating-point numbers in float32."""
    values = tensor.detach()[:rows]
    kind = torch.float32 if values.is_floating_point() else values.dtype
    return torch.empty(values.shape, dtype=kind, device="cpu").copy_(values)


def _row_bytes(rows: Tensor) -> list[bytes]:
    # Not .numpy(): it may not be installed.
    size = rows[:1].numel() * rows.element_size()
    return [ctypes.string_at(rows.data_ptr() + row * size, size) for row in range(len(rows))]


def _shape(chunk: Chunk) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape[1:]) for tensor in chunk.inputs]


def _joined(parts: Iterator[Tensor | None]) -> Tensor | None:
    found = list(parts)
    known = [part for part in found if part is not None]
    if not known or len(known) < len(found) or len({part.shape[1:] for part in known}) > 1:
        return None
    return torch.cat(known) if len({part.dtype for part in known}) == 1 else None
