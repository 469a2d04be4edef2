"""Which kind of file this is, by its first bytes before its name, and what can be said of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from weaklink.agent.reading.decoding import is_text, shown_line, shown_name, visible
from weaklink.agent.reading.masks import masked_lines
from weaklink.agent.reading.summaries import (
    archives,
    databases,
    images,
    json_files,
    numpy_files,
    safetensors,
    tables,
    torch_files,
)
from weaklink.agent.reading.summaries.source import Source

MOST_LINES = 220
MOST_CHARACTERS = 16 * 1024
_HASHED = 64 * 2**20  # bytes; larger files are named without their SHA-256
_UNPACKED = 16 * 2**20  # of a compressed file
_HEAD = 512

Kind = Callable[[Source], list[str]]


@dataclass(frozen=True)
class Summary:
    """What is said of a file. `sha256` is that of all its bytes, None where they are too many to be read."""

    text: str
    sha256: str | None


def summary_suits(name: str) -> bool:
    """Whether a text file of this name is better known by a summary beside its first lines."""
    return name.lower().endswith((".csv", ".tsv", ".json", ".jsonl", ".ndjson"))


def summary_of(name: str, file: BinaryIO, size: int) -> Summary:
    """A file in words, each line safe to show, secrets masked. Never raises for what a file may hold.

    Args:
        name: As it is shown.
        file: The open file, seekable.
        size: Its bytes.
    """
    lines = [f"{shown_name(name)}, a summary ({size} bytes):"]
    try:
        lines += _kind(Source(name, file, size))
    # A file may be damaged in every way, and made to be: whatever a reader meets in it is an answer, not a failure.
    except Exception as error:
        lines.append(f"not read: {shown_line(str(error) or type(error).__name__, 200)}")
        lines += _unknown(Source(name, file, size))
    return Summary(_bounded(lines), _digest(file, size))


def _kind(source: Source) -> list[str]:
    head = source.head(_HEAD)
    if head.startswith(b"PK\x03\x04"):
        return _archive(source)
    for start, read in _BY_START:
        if head.startswith(start):
            return read(source)
    if torch_files.is_legacy(head):
        return torch_files.torch_legacy(source)
    if head[257:262] == b"ustar":
        return archives.tar_listing(source)
    if safetensors.is_safetensors(head, source.size):
        return safetensors.safetensors(source)
    name = source.name.lower()
    if head[:1] == b"\x80" and len(head) > 1 and head[1] in range(2, 6):
        return torch_files.raw_pickle(source)
    for endings, read in _BY_NAME:
        if name.endswith(endings):
            return read(source)
    return _unknown(source)


def _archive(source: Source) -> list[str]:
    with archives.opened_zip(source) as archive:
        names = archive.namelist()
        pickled = [name for name in names if name == "data.pkl" or name.endswith("/data.pkl")]
        if pickled:
            return torch_files.torch_zip(source, archive, min(pickled, key=len))
        if names and all(name.endswith(".npy") for name in names):
            return numpy_files.npz(archive)
        return archives.zip_listing(archive)


def _unpacked(source: Source) -> list[str]:
    """A gzip stream: its first bytes are unpacked into memory and told like a file of their own."""
    with gzip.GzipFile(fileobj=source) as stream:
        data = stream.read(_UNPACKED + 1)
    cut = len(data) > _UNPACKED
    inner = source.name[:-3] if source.name.lower().endswith(".gz") else source.name
    lines = [f"compressed by gzip; {'the first ' if cut else ''}{min(len(data), _UNPACKED)} bytes when unpacked:"]
    if data[:2] == b"\x1f\x8b":
        return [*lines, "compressed by gzip once more, not unpacked"]
    content = data[:_UNPACKED]
    # Told to be larger than it is where it was cut, so that no reader takes its end for the file's.
    source_inside = Source(inner, io.BytesIO(content), len(data), deadline=source.deadline)
    if is_text(content) and not inner.lower().endswith(tuple(e for endings, _ in _BY_NAME for e in endings)):
        return [*lines, "text, beginning with:", *(content[:2000].decode("utf-8", "replace").splitlines()[:20])]
    return lines + _kind(source_inside)


def _parquet(source: Source) -> list[str]:
    source.seek(max(source.size - 8, 0))
    tail = source.read(8)
    if tail[4:] != b"PAR1":
        return ["a Parquet file without its end: cut"]
    return [f"a Parquet file, its metadata has {int.from_bytes(tail[:4], 'little')} bytes; columns are not read here"]


def _known(text: str) -> Kind:
    return lambda source: [text]


def _unknown(source: Source) -> list[str]:
    """First bytes and entropy: a hint whether a file is compressed, or empty, or of plain numbers."""
    if not source.size:
        return ["an empty file"]
    data = source.head(1 << 16)
    counts = Counter(data)
    entropy = -sum(count / len(data) * math.log2(count / len(data)) for count in counts.values())
    hint = "like compressed or encrypted data" if entropy > 7.8 else "like plain data"
    if len(counts) == 1:
        hint = f"the byte {data[0]} alone"
    return [f"of no kind that is read here; begins {data[:16].hex(' ')}; {entropy:.1f} bits a byte, {hint}"]


_BY_START: tuple[tuple[bytes, Kind], ...] = (
    (numpy_files.MAGIC, numpy_files.npy),
    (b"SQLite format 3\0", databases.sqlite),
    (b"\x89PNG\r\n\x1a\n", images.png),
    (b"\xff\xd8\xff", images.jpeg),
    (b"GIF8", images.gif),
    (b"PAR1", _parquet),
    (b"\x1f\x8b", _unpacked),
    (b"\x89HDF\r\n\x1a\n", _known("an HDF5 file; its datasets are not read here")),
    (b"ARROW1", _known("an Arrow file; its columns are not read here")),
    (b"\x7fELF", _known("a program or library in machine code")),
    (b"BZh", _known("compressed by bzip2, not unpacked")),
    (b"\xfd7zXZ", _known("compressed by xz, not unpacked")),
    (b"\x28\xb5\x2f\xfd", _known("compressed by zstd, not unpacked")),
    (b"%PDF", _known("a PDF document")),
)
_BY_NAME: tuple[tuple[tuple[str, ...], Kind], ...] = (
    ((".csv", ".tsv"), tables.table),
    ((".jsonl", ".ndjson"), json_files.json_lines),
    ((".json",), json_files.json_file),
    ((".pkl", ".pickle"), torch_files.raw_pickle),
)


def _digest(file: BinaryIO, size: int) -> str | None:
    if size > _HASHED:
        return None
    digest = hashlib.sha256()
    file.seek(0)
    left = _HASHED
    while left > 0 and (data := file.read(min(1 << 20, left))):
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()


def _bounded(lines: list[str]) -> str:
    whole = "\n".join(lines).split("\n")
    shown = [visible(line) for line in masked_lines([line[:2000] for line in whole[:MOST_LINES]], code=False)]
    if len(whole) > MOST_LINES:
        shown.append(f"... and {len(whole) - MOST_LINES} more lines")
    text = "\n".join(shown)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "\n... cut here"
