"""`.safetensors`: a JSON header with names, types, shapes and places, then the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weaklink.agent.reading.decoding import shown_line, shown_name
from weaklink.agent.reading.summaries.source import Readable, Source
from weaklink.agent.reading.summaries.tensors import Reader, Tensor

_MOST_HEADER = 8 * 2**20
_MOST_TENSORS = 160
_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file begins with the length of a JSON header that fits into it."""
    return len(head) > 8 and 2 <= int.from_bytes(head[:8], "little") <= size - 8 and head[8:9] == b"{"


def safetensors(source: Source) -> list[str]:
    """Names, types, shapes, norms.

    Raises:
        ValueError: The header is damaged or too large.
    """
    length = int.from_bytes(source.read(8), "little")
    if length > min(_MOST_HEADER, source.size - 8):
        raise ValueError(f"its header would have {length} bytes")
    header = json.loads(source.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    begin = 8 + length
    places = {name: _place(entry) for name, entry in header.items() if name != "__metadata__"}

    @contextmanager
    def open_at(storage: str, offset: int) -> Iterator[Readable]:
        source.seek(begin + int(storage) + offset)
        yield source

    reader = Reader(open_at)
    lines = [f"safetensors with {len(places)} tensors"]
    metadata = header.get("__metadata__")
    for key, value in list(metadata.items())[:20] if isinstance(metadata, dict) else []:
        lines.append(f"metadata {shown_name(key[:100])} = {shown_line(str(value), 200)}")
    for name, tensor in list(places.items())[:_MOST_TENSORS]:
        told = "its place is damaged" if tensor is None else reader.text(tensor)
        lines.append(f"{shown_name(name[:200])}  {told}")
    if len(places) > _MOST_TENSORS:
        lines.append(f"... and {len(places) - _MOST_TENSORS} more tensors")
    return lines


def _place(entry: Any) -> Tensor | None:
    if not isinstance(entry, dict):
        return None
    shape, offsets, dtype = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets")), entry.get("dtype")
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(dtype, str):
        return None
    return Tensor(shape, _TYPES.get(dtype, dtype[:20]), 0, None, str(offsets[0]))


def _sizes(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(isinstance(item, int) and 0 <= item < 2**62 for item in value):
        return tuple(value)
    return None
