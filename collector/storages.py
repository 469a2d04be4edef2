"""Copies of what lies in memory behind tensors: taken once a storage, written back bit for bit.

Works on raw bytes, below autograd: nothing here bumps a version counter, and a NaN comes back as the NaN it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_Storage = torch.UntypedStorage


class StorageCopies:
    """One copy of each distinct piece of memory behind `tensors`.

    Tensors that share a storage (tied weights, the flat buffer of a recurrent network) are copied together. Of a
    storage that they cover only in part, such as the first rows of a data set, only those parts are copied.

    Args:
        tensors: Strided tensors with values; a copy of each can be asked for.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._pieces: list[Tensor] = []  # where the bytes belong
        self._part_of: dict[int, tuple[int, bool]] = {}  # id(tensor) -> index of its piece, and whether that is whole
        by_storage: dict[tuple[torch.device, int], list[Tensor]] = defaultdict(list)
        sizes: list[tuple[_Storage, int]] = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            together = by_storage[(storage.device, storage.data_ptr())]
            if not together:
                sizes.append((storage, storage.nbytes()))
            together.append(tensor)
        self._sizes = sizes
        for (storage, size), together in zip(sizes, by_storage.values(), strict=True):
            self._add(storage, size, together)
        self._copies, self.on_host = _copy_all(self._pieces)

    def _add(self, storage: _Storage, size: int, tensors: list[Tensor]) -> None:
        if sum(tensor.numel() * tensor.element_size() for tensor in tensors) >= size:
            self._part_of.update({id(tensor): (len(self._pieces), True) for tensor in tensors})
            self._pieces.append(_all_bytes(storage))
            return
        known: dict[tuple[int, torch.Size, tuple[int, ...], torch.dtype], int] = {}
        for tensor in tensors:
            key = (int(tensor.storage_offset()), tensor.size(), tensor.stride(), tensor.dtype)
            if key not in known:
                known[key] = len(self._pieces)
                self._pieces.append(_own_values(tensor))
            self._part_of[id(tensor)] = (known[key], False)

    @property
    def bytes(self) -> int:
        """Size of all copies together."""
        return sum(copy.numel() * copy.element_size() for copy in self._copies)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """The values that `tensor` had, of its shape and type. No second copy: do not write to it."""
        position, whole = self._part_of[id(tensor)]
        copy = self._copies[position]
        if not whole:
            return copy.view(tensor.dtype).view(tensor.size()) if tensor.is_contiguous() else copy
        offset = int(tensor.storage_offset())
        return _window(copy.untyped_storage(), tensor.dtype, offset, tensor.size(), tensor.stride())

    def restore(self) -> None:
        """Write every copy back to where it came from."""
        for storage, size in self._sizes:
            if storage.nbytes() < size:  # somebody freed it to save memory, as sharded training does
                storage.resize_(size)
        changed = [
            (piece, copy)
            for piece, copy in zip(self._pieces, self._copies, strict=True)
            # Comparing is as fast as copying, and memory that may not be written to, a mapped data file, is left alone.
            # On an accelerator each comparison would be a transfer.
            if piece.device.type != "cpu" or not _equal(piece, copy)
        ]
        _copy_into([piece for piece, _ in changed], [copy for _, copy in changed])


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.dtype is torch.uint8 and a.numel() % 8 == 0 and a.storage_offset() % 8 == 0:
        return torch.equal(a.view(torch.int64), b.view(torch.int64))  # five times as fast as byte by byte
    return torch.equal(a, b)


def _window(storage: _Storage, dtype: torch.dtype, offset: int, size: Iterable[int], stride: Iterable[int]) -> Tensor:
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, tuple(size), tuple(stride))


def _all_bytes(storage: _Storage) -> Tensor:
    return _window(storage, torch.uint8, 0, (storage.nbytes(),), (1,))


def _own_values(tensor: Tensor) -> Tensor:
    """The tensor's part of its storage: as bytes where it is one stretch, else strided as it is."""
    storage, size, offset = tensor.untyped_storage(), tensor.element_size(), int(tensor.storage_offset())
    if tensor.is_contiguous():
        return _window(storage, torch.uint8, offset * size, (tensor.numel() * size,), (1,))
    return _window(storage, tensor.dtype, offset, tensor.size(), tensor.stride())


def _copy_all(pieces: list[Tensor]) -> tuple[list[Tensor], bool]:
    """A copy of each, on its own device while there is room, else on the host; whether the host was needed."""
    room: dict[torch.device, int] = {}
    copies: list[Tensor] = []
    on_host = False
    for piece in pieces:
        if piece.device not in room:
            room[piece.device] = _room(piece.device)
        size = piece.numel() * piece.element_size()
        copy = _empty(piece) if size <= room[piece.device] else None
        if copy is None:
            on_host = True
            copy = torch.empty_like(piece, device="cpu")
        else:
            room[piece.device] -= size
        copies.append(copy)
    _copy_into(copies, pieces)
    return copies, on_host


def _empty(piece: Tensor) -> Tensor | None:
    try:
        return torch.empty_like(piece)
    except torch.cuda.OutOfMemoryError:
        return None


def _room(device: torch.device) -> int:
    """Bytes that copies may take on a device: half of what is free, the body needs memory for its own forward."""
    if device.type != "cuda":
        return 2**63 - 1
    free = torch.cuda.mem_get_info(device)[0]
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int((free + cached) // 2)


def _copy_into(targets: list[Tensor], sources: list[Tensor]) -> None:
    foreach = getattr(torch, "_foreach_copy_", None)  # no public name in any release up to 2.13
    groups: dict[tuple[torch.device, torch.device, torch.dtype], list[int]] = defaultdict(list)
    for position, (target, source) in enumerate(zip(targets, sources, strict=True)):
        groups[(target.device, source.device, target.dtype)].append(position)
    for (to, origin, _), positions in groups.items():
        if foreach is not None and to == origin:
            foreach([targets[i] for i in positions], [sources[i] for i in positions])
        else:
            for i in positions:
                targets[i].copy_(sources[i])
