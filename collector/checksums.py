"""Checksums of tensors where they lie: two sums over their bits, one transfer to the host for all of them.

For telling that tensors differ, not for proving that they are equal: a hash would bring every one of them to the host.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from weaklink.collector.tensors import dense

# Of a tensor so many entries are read; tensors are laid end to end up to as many.
READ_ENTRIES = 1 << 24
# The second sum weighs each entry by its position, so that a permutation shows; a prime, so that rows do not repeat.
_PERIOD = 65_521
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
EMPTY = "-"


def checksums(tensors: Sequence[Tensor | None]) -> list[str]:
    """A checksum of each tensor's first `READ_ENTRIES` entries, by value: negative zero equals zero.

    `EMPTY` for None and for what has no values to read (meta, quantized, sharded over processes).
    """
    found = [EMPTY] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = defaultdict(list)
    with torch.no_grad():
        for position, tensor in enumerate(tensors):
            if tensor is not None and is_readable(tensor):
                values = dense(tensor)
                values = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)[:READ_ENTRIES]
                groups[values.device, values.dtype].append((position, values))
        for members in groups.values():
            for part in _parts(members):
                for (position, values), sums in zip(part, _sums([values for _, values in part]), strict=True):
                    text = f"{tuple(values.shape)} {values.dtype} {sums}"
                    found[position] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def is_readable(tensor: Tensor) -> bool:
    """Whether this process holds its values, all of them and in plain memory."""
    return not (tensor.is_meta or tensor.is_quantized or tensor.is_nested or is_sharded(tensor))


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is one process's part of a tensor (torch's DTensor): it says on which devices the others are."""
    return hasattr(tensor, "device_mesh") or hasattr(tensor, "_sharding_spec")


def joint(parts: Sequence[str]) -> str:
    """One checksum of several; "" of none."""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16] if parts else ""


def _parts(members: list[tuple[int, Tensor]]) -> list[list[tuple[int, Tensor]]]:
    parts: list[list[tuple[int, Tensor]]] = [[]]
    size = 0
    for member in members:
        size += member[1].numel()
        if size > READ_ENTRIES and parts[-1]:
            parts.append([])
            size = member[1].numel()
        parts[-1].append(member)
    return parts


def _sums(pieces: list[Tensor]) -> list[list[int]]:
    """Both sums of each piece, in 64-bit integers that wrap around; pieces are of one device and type."""
    flat = torch.cat(pieces)
    if flat.dtype.is_floating_point and flat.element_size() > 1:  # nothing adds up in eight bits
        flat = flat + torch.zeros((), dtype=flat.dtype, device=flat.device)  # negative zero becomes zero
    bits = flat.to(torch.int64) if flat.dtype == torch.bool else flat.view(_BITS[flat.element_size()]).to(torch.int64)
    ends = torch.tensor([piece.numel() for piece in pieces], device=bits.device).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    places = torch.arange(bits.numel(), device=bits.device)
    weights = (places - torch.repeat_interleave(starts, ends - starts)) % _PERIOD + 1
    rows = []
    for summed in (bits, bits * weights):
        running = torch.cat([summed.new_zeros(1), summed.cumsum(0)])
        rows.append(running[ends] - running[starts])
    both: list[list[int]] = torch.stack(rows, dim=1).tolist()
    return both
