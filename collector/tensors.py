"""Reading tensors without touching them: norms, digests, movement. One transfer to the host a call.

Nothing here draws a random number, builds a graph, or writes to a tensor of the user's.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
from collections import UserDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# A digest copies the tensor to the host; above this many bytes a run would notice.
DIGEST_LIMIT_BYTES = 256 * 1024 * 1024
# Differences and widened copies exist all at once for one transfer to the host; above this many bytes in parts.
PART_BYTES = 256 * 1024 * 1024
# Nothing is transferred on the host, and memory that was just given back is there without asking the system again.
HOST_PART_BYTES = 16 * 1024 * 1024
# Tensors up to this many entries are laid end to end and measured together: the calls would cost more than the numbers.
SMALL_ENTRIES = 4096
_FLAT = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
# Where torch sums by segments in float64. Apple's device has none; of the others nothing is known.
_SEGMENTED = frozenset({"cpu", "cuda"})


def dense(tensor: Tensor) -> Tensor:
    """The values of a tensor, detached; of a sparse one its explicit values."""
    values = tensor.detach()
    if values.is_sparse:
        return values.coalesce().values()
    if values.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return values.values()
    return values


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection meanwhile: lists over ten thousand tensors would set off one after the other."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@without_collection()
def norms(tensors: Sequence[Tensor]) -> list[float]:
    """Euclidean norm of each tensor, as float64-accurate as its dtype allows; one host transfer a device and type.

    Half precision is widened first: the square of 1e-4 is zero in float16. Large tensors are taken in parts, with one
    transfer each: all of a model's gradients widened at once may be more than its device has room for.
    """
    found = [0.0] * len(tensors)
    with torch.no_grad():
        small, rest = _by_kind(tensors)
        for positions in small.values():
            flat = _flat([tensors[position] for position in positions])
            _put(found, positions, _norms_of_pieces(flat, [tensors[position].numel() for position in positions]))
        for part in _parts([tensors[position] for position in rest], rest):
            large: dict[Kind, list[int]] = defaultdict(list)
            wide = {position: _wide(tensors[position]) for position in part}
            for position, values in wide.items():
                large[values.device, values.dtype].append(position)
            for positions in large.values():
                _put(found, positions, _norms_of_one_kind([wide[position] for position in positions]))
    return found


Kind = tuple[torch.device, torch.dtype]


def _by_kind(tensors: Sequence[Tensor]) -> tuple[dict[Kind, list[int]], list[int]]:
    """Positions of the small dense tensors by device and type, and those of all others."""
    kinds: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for position, tensor in enumerate(tensors):  # the only loop over all of them: nothing is called in it
        kinds[tensor.layout, tensor.device, tensor.dtype].append(position)
    small: dict[Kind, list[int]] = {}
    rest: list[int] = []
    for (layout, device, dtype), positions in kinds.items():
        if layout is not torch.strided or dtype not in _FLAT or device.type not in _SEGMENTED:
            rest += positions
            continue
        fitting = [position for position in positions if tensors[position].numel() <= SMALL_ENTRIES]
        if fitting:
            small[device, dtype] = fitting
        if len(fitting) < len(positions):
            rest += [position for position in positions if tensors[position].numel() > SMALL_ENTRIES]
    return small, rest


def _cannot_underflow(tensor: Tensor) -> bool:
    """Whether its norm is zero only where every entry is: measured in float64, from a type of smaller range."""
    flat = tensor.layout is torch.strided and tensor.dtype in _FLAT and tensor.numel() <= SMALL_ENTRIES
    return flat and tensor.dtype != torch.float64 and tensor.device.type in _SEGMENTED


def _put(found: list[float], positions: list[int], lengths: list[float]) -> None:
    for position, length in zip(positions, lengths, strict=True):
        found[position] = length


def _wide(tensor: Tensor) -> Tensor:
    values = dense(tensor)
    if values.dtype in (torch.float16, torch.bfloat16) or not (values.is_floating_point() or values.is_complex()):
        return values.float()
    return values


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor if tensor.dim() == 1 else tensor.reshape(-1) for tensor in tensors])


def _norms_of_pieces(flat: Tensor, sizes: list[int]) -> list[float]:
    """Norms of the pieces of a flat tensor: squared in float64 and summed piece by piece, however many there are.

    A norm whose square its own type cannot hold is infinite, as torch's own would be: a column does not change its
    meaning with the size of a tensor.
    """
    wide = flat.double()
    lengths = torch.tensor(sizes, device=flat.device)
    squares = torch.segment_reduce(wide * wide, "sum", lengths=lengths, unsafe=True)
    half = flat.dtype in (torch.float16, torch.bfloat16)
    limit = torch.finfo(torch.float32 if half else flat.dtype).max
    found = squares.masked_fill(squares > limit, float("inf")).sqrt()
    return [float(length) for length in found.tolist()]


def _norms_of_one_kind(tensors: list[Tensor]) -> list[float]:
    if not tensors:
        return []
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


@without_collection()
def movements(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[list[bool], list[float], list[float]]:
    """Whether each pair (now, before) differs in any entry, the Euclidean norm of the difference, and that of before.

    A norm that is finite and not zero is movement beyond doubt, and a small tensor's zero is none. Only elsewhere
    (underflow, overflow) are the entries themselves compared: that takes several further operations a tensor.
    """
    deltas, lengths = [0.0] * len(pairs), [0.0] * len(pairs)
    now, before = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    with torch.no_grad():
        small, rest = _by_kind(now)
        if _by_kind(before)[0] != small:  # moved to another device or type meanwhile: one by one
            small, rest = {}, list(range(len(pairs)))
        for positions in small.values():
            sizes = [now[position].numel() for position in positions]
            flat = _flat([before[position] for position in positions])
            _put(lengths, positions, _norms_of_pieces(flat, sizes))
            _put(deltas, positions, _norms_of_pieces(_flat([now[position] for position in positions]) - flat, sizes))
        _put(lengths, rest, norms([before[position] for position in rest]))
        for part in _parts([now[position] for position in rest], rest):
            _put(deltas, part, norms([now[position] - before[position] for position in part]))
    moved = [delta != 0.0 for delta in deltas]
    doubtful = [
        index
        for index, delta in enumerate(deltas)
        if not 0.0 < delta < float("inf") and not (delta == 0.0 and _cannot_underflow(now[index]))
    ]
    for index, has_moved in zip(doubtful, differ([pairs[index] for index in doubtful]), strict=True):
        moved[index] = has_moved
    return moved, deltas, lengths


def _parts(tensors: Sequence[Tensor], positions: list[int]) -> Iterator[list[int]]:
    """The positions in runs whose tensors fit into a part together (one of them may be larger)."""
    start, size = 0, 0
    on_host = bool(tensors) and tensors[0].device.type == "cpu"
    limit = HOST_PART_BYTES if on_host else PART_BYTES
    for end, tensor in enumerate(tensors):
        size += tensor.numel() * tensor.element_size()
        if size > limit and end > start:
            yield positions[start:end]
            start, size = end, tensor.numel() * tensor.element_size()
    if positions:
        yield positions[start:]


def exactly_zero(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether every entry of each tensor is exactly zero."""
    with torch.no_grad():
        return _flags([(dense(tensor) == 0).all() for tensor in tensors])


def zeros_by_norm(tensors: Sequence[Tensor], lengths: Sequence[float]) -> list[bool]:
    """The same, asking only those entries whose norm leaves it open: a norm underflows before its entries do."""
    found = [length == 0.0 for length in lengths]
    doubtful = [index for index, zero in enumerate(found) if zero and not _cannot_underflow(tensors[index])]
    for index, zero in zip(doubtful, exactly_zero([tensors[index] for index in doubtful]), strict=True):
        found[index] = zero
    return found


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
        return None  # a subclass whose values lie nowhere as plain bytes (fake, nested): the row says so


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
    elif depth and isinstance(value, (dict, UserDict)):  # tokenizers answer with the latter
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and hasattr(type(value), "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name, None), depth - 1)


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of mappings, tuples and lists, with `function` of each tensor; anything else as it is."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, tuple):
        parts = [mapped(item, function) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [mapped(item, function) for item in value] if isinstance(value, list) else value


def memory_of(tensor: Tensor) -> int | None:
    """Address of the memory that a tensor is a view of; None where it has none, or none of its own (sparse, fake).

    Tells two tensors apart as long as both are alive.
    """
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (RuntimeError, NotImplementedError):  # torch raises either, by the kind of tensor
        return None


def shares_memory(tensor: Tensor, memory: int | None) -> bool:
    """Whether a tensor is a view of this memory: never where there is none."""
    return memory is not None and memory_of(tensor) == memory
