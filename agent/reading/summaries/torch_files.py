"""Files of `torch.save`, read without torch and without running their pickle: keys, shapes, norms, scalars, optimizers.

Both layouts are read: the zip archive that torch has written since 1.6, and the row of pickles before it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO

from weaklink.agent.reading.summaries.pickles import Call, Many, read_pickle
from weaklink.agent.reading.summaries.source import BoundError, Readable, Source
from weaklink.agent.reading.summaries.structures import structure_text, tensor_of
from weaklink.agent.reading.summaries.tensors import KINDS, Reader, Tensor

_MOST_PICKLE = 24 * 2**20  # bytes
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def torch_zip(source: Source, archive: zipfile.ZipFile, member: str) -> list[str]:
    """What an archive of `torch.save` holds.

    Args:
        source: The file, for its bounds.
        archive: The same file, as an archive.
        member: The name of its `data.pkl`.

    Raises:
        ValueError: The pickle in it is damaged or too large.
    """
    prefix = member.removesuffix("data.pkl")
    with archive.open(member) as file:
        pickled = file.read(_MOST_PICKLE + 1)
    if len(pickled) > _MOST_PICKLE:
        raise BoundError(f"its structure has more than {_MOST_PICKLE // 2**20} MiB")
    little = True
    if prefix + "byteorder" in archive.namelist():
        little = archive.open(prefix + "byteorder").read(16).strip() != b"big"

    @contextmanager
    def open_at(storage: str, offset: int) -> Iterator[Readable]:
        with archive.open(f"{prefix}data/{storage}") as file:
            _skip(file, offset)
            yield file

    value = read_pickle(io.BytesIO(pickled), source)
    return ["a file of torch.save; read, not loaded", *structure_text(value, Reader(open_at, little))]


def torch_legacy(source: Source) -> list[str]:
    """What a file of torch before 1.6 holds.

    Raises:
        ValueError: It is none.
    """
    file: BinaryIO = io.BufferedReader(source, 1 << 16)
    if read_pickle(file, source) != _LEGACY_MAGIC:
        raise ValueError("no file of torch.save")
    for _ in range(2):  # the protocol's version, the machine it was written on
        read_pickle(file, source)
    value = read_pickle(file, source)
    keys = read_pickle(file, source)
    offsets = _legacy_offsets(source, file, value, keys.items if isinstance(keys, Many) else [])

    @contextmanager
    def open_at(storage: str, offset: int) -> Iterator[Readable]:
        source.seek(offsets[storage] + offset)
        yield source

    return ["a file of torch.save in its old layout; read, not loaded", *structure_text(value, Reader(open_at))]


def is_legacy(head: bytes) -> bool:
    """Whether a file begins like one of torch before 1.6."""
    return _LEGACY_MAGIC.to_bytes(10, "little") in head[:24]


def _legacy_offsets(source: Source, file: BinaryIO, value: Any, keys: list[Any]) -> dict[str, int]:
    sizes = {}
    for tensor in _tensors(value):
        entry = KINDS.get(tensor.dtype)
        sizes[tensor.storage] = entry.size if entry else 1
    position, offsets = file.tell(), {}
    for key in keys:
        source.seek(position)
        count = int.from_bytes(source.read(8), "little")
        offsets[str(key)] = position + 8
        position += 8 + count * sizes.get(str(key), 1)
    return offsets


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors that a structure holds, each container once."""
    waiting, seen = [value], set()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, Many | Call) or id(each) in seen:
            continue
        seen.add(id(each))
        tensor = tensor_of(each)
        if tensor is not None:
            yield tensor
        waiting += _inside(each)


def _inside(value: Many | Call) -> list[Any]:
    if isinstance(value, Many):
        return [*value.items, *(inner for _, inner in value.pairs)]
    return [value.arguments, value.state, value.held]


def raw_pickle(source: Source) -> list[str]:
    """The top of a plain pickle's structure.

    Raises:
        ValueError: It is none.
    """
    value = read_pickle(io.BufferedReader(source, 1 << 16), source)

    def open_at(storage: str, offset: int) -> AbstractContextManager[Readable]:
        raise ValueError("its numbers are kept elsewhere")

    return ["a pickle; read by its opcodes, not loaded", *structure_text(value, Reader(open_at))]


def _skip(file: Readable, count: int) -> None:
    while count > 0:
        data = file.read(min(count, 1 << 20))
        if not data:
            return
        count -= len(data)
