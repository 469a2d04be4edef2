"""Reading tensors without touching them: norms, digests, movement. One transfer to the host a call.

Nothing here draws a random number, builds a graph, or writes to a tensor of the user's.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# A digest copies the tensor to the host; above this many bytes a run would notice.
DIGEST_LIMIT_BYTES = 256 * 1024 * 1024


def dense(tensor: Tensor) -> Tensor:
    """The values of a tensor, detached; of a sparse one its explicit values."""
    values = tensor.detach()
    if values.is_sparse:
        return values.coalesce().values()
    if values.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return values.values()
    return values


def norms(tensors: Sequence[Tensor]) -> list[float]:
    """Euclidean norm of each tensor, as float64-accurate as its dtype allows; one host transfer a device.

    Half precision is widened first: the square of 1e-4 is zero in float16.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
    wide: list[Tensor] = []
    for position, tensor in enumerate(tensors):
        values = dense(tensor)
        if values.dtype in (torch.float16, torch.bfloat16) or not (values.is_floating_point() or values.is_complex()):
            values = values.float()
        wide.append(values)
        groups[(values.device, values.dtype)].append(position)
    found = [0.0] * len(wide)
    for positions in groups.values():
        for position, value in zip(positions, _norms_of_one_kind([wide[i] for i in positions]), strict=True):
            found[position] = value
    return found


def _norms_of_one_kind(tensors: list[Tensor]) -> list[float]:
    if not tensors:
        return []
    with torch.no_grad():
        foreach = getattr(torch, "_foreach_norm", None)  # no public name in any release up to 2.13
        results = foreach(tensors) if foreach is not None else [torch.linalg.vector_norm(t) for t in tensors]
        return [float(value) for value in torch.stack([result.real for result in results]).cpu().double().tolist()]


def nonfinite(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether each tensor holds a NaN or an infinity."""
    return _flags([~torch.isfinite(dense(tensor)).all() for tensor in tensors])


def differ(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[bool]:
    """Whether each pair differs in any entry; two NaNs in one place are equal."""
    with torch.no_grad():
        return _flags([((a != b) & ~((a != a) & (b != b))).any() for a, b in pairs])


def exactly_zero(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether every entry of each tensor is exactly zero."""
    with torch.no_grad():
        return _flags([(dense(tensor) == 0).all() for tensor in tensors])


def _flags(results: list[Tensor]) -> list[bool]:
    by_device: dict[torch.device, list[int]] = defaultdict(list)
    for position, result in enumerate(results):
        by_device[result.device].append(position)
    found = [False] * len(results)
    for positions in by_device.values():
        for position, value in zip(positions, torch.stack([results[i] for i in positions]).tolist(), strict=True):
            found[position] = bool(value)
    return found


def digest(tensor: Tensor) -> str | None:
    """SHA-256 over dtype, shape and raw bytes; None above `DIGEST_LIMIT_BYTES` or where there are no bytes to read."""
    values = dense(tensor)
    size = values.numel() * values.element_size()
    if size > DIGEST_LIMIT_BYTES or values.device.type == "meta":
        return None
    try:
        host = values.contiguous().cpu().contiguous()
        head = f"{host.dtype}{tuple(host.shape)}".encode()
        # Not .numpy(): bfloat16 has no numpy type, and numpy may not be installed.
        return hashlib.sha256(head + ctypes.string_at(host.data_ptr(), size) if size else head).hexdigest()
    except (RuntimeError, NotImplementedError):
        return None


def digest_all(tensors: Sequence[Tensor]) -> str | None:
    """One SHA-256 over several tensors in order; None when one of them has none, or there are none."""
    parts = [digest(tensor) for tensor in tensors]
    if not parts or any(part is None for part in parts):
        return None
    return hashlib.sha256("".join(part or "" for part in parts).encode()).hexdigest()


def tensors_in(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Tensors inside tuples, lists, mappings and dataclass-like outputs, in order, at most `depth` levels down."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and hasattr(type(value), "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name, None), depth - 1)
