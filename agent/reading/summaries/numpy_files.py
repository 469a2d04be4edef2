"""`.npy` and `.npz`: the header is read by hand and the numbers as bytes; arrays of Python objects are not read.

An object array is a pickle, and to read a pickle is to run it.
"""

from __future__ import annotations

import contextlib
import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from weaklink.agent.reading.decoding import shown_name
from weaklink.agent.reading.summaries.numbers import Kind, Statistics, kind, short, values_of
from weaklink.agent.reading.summaries.source import BoundError, Readable, Source, chunks

MAGIC = b"\x93NUMPY"
_MOST_BYTES = 24 * 2**20  # of one array's numbers
_MOST_HEADER = 1 << 16
_MOST_ARRAYS = 60
_MOST_COLUMNS = 40
_MOST_TRACKED = 512  # columns with statistics of their own
_DESCR = re.compile(r"'descr'\s*:\s*'([<>|=]?)([a-zA-Z?])(\d{0,9})([^']{0,40})'")
_SHAPE = re.compile(r"'shape'\s*:\s*\(([\d,\sL]{0,1000})\)")
_FORTRAN = re.compile(r"'fortran_order'\s*:\s*True")
_CODES = {
    "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I",
    "u8": "Q", "b1": "B",
}  # fmt: skip
_NAMES = {"f": "float", "i": "int", "u": "uint"}


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    type: str
    entry: Kind | None


def npy(source: Source) -> list[str]:
    """Shape, type and statistics of one array.

    Raises:
        ValueError: It is none.
    """
    return _array(source, source.size)


def npz(archive: zipfile.ZipFile) -> list[str]:
    """The arrays of an archive, each with what `npy` tells."""
    lines: list[str] = []
    members = archive.infolist()
    for member in members[:_MOST_ARRAYS]:
        lines.append(f"{shown_name(member.filename.removesuffix('.npy'))}:")
        try:
            with archive.open(member) as file:
                lines += [f"  {line}" for line in _array(file, member.file_size)]
        except Exception as error:  # one damaged member hides none of the others
            lines.append(f"  cannot be read: {error}")
    if len(members) > _MOST_ARRAYS:
        lines.append(f"... and {len(members) - _MOST_ARRAYS} more arrays")
    return lines


def _array(file: Readable, size: int) -> list[str]:
    header = _header(file)
    lines = [f"array {header.type} {list(header.shape)}{', Fortran order' if header.fortran else ''}"]
    entries = math.prod(header.shape)
    if header.entry is None:
        return [*lines, "its entries are no plain numbers and are not read"]
    wanted = entries * header.entry.size
    if wanted > size:
        lines.append(f"the header promises {wanted} bytes of numbers, the file has {size} in all: damaged")
    return lines + _statistics(file, header, wanted)


def _header(file: Readable) -> _Header:
    start = file.read(8)
    if start[:6] != MAGIC or len(start) < 8:
        raise ValueError("no array: it does not begin as one")
    length_bytes = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(length_bytes), "little")
    if length > _MOST_HEADER:
        raise ValueError(f"its header has {length} bytes")
    text = file.read(length).decode("latin-1")
    shape = _SHAPE.search(text)
    if shape is None:
        raise ValueError("its header names no shape")
    sizes = tuple(int(part.strip().rstrip("L")) for part in shape[1].split(",") if part.strip())
    described = _DESCR.search(text)
    if described is None:
        return _Header(sizes, False, "of records", None)
    order, letter, width, rest = described.groups()
    code = _CODES.get(letter + width)
    return _Header(sizes, _FORTRAN.search(text) is not None, *_entry(order, letter, width, rest, code))


def _entry(order: str, letter: str, width: str, rest: str, code: str | None) -> tuple[str, Kind | None]:
    if letter == "O":
        return "of Python objects (a pickle; refused)", None
    if code is None:
        return f"of type {letter}{width}{rest}", None
    name = "bool" if letter == "b" else f"{_NAMES[letter]}{int(width) * 8}"
    return name, kind(name, code, little=order != ">")


def _statistics(file: Readable, header: _Header, wanted: int) -> list[str]:
    entry = header.entry
    assert entry is not None
    rows, columns = (header.shape[0], header.shape[1]) if len(header.shape) == 2 else (0, 0)
    tracked = 0 < columns <= _MOST_TRACKED and rows > 0
    whole = Statistics()
    by_column = [Statistics() for _ in range(columns if tracked else 0)]
    bad_rows = _BadRows(rows, columns, header.fortran) if tracked else None
    seen = 0
    with contextlib.suppress(BoundError):  # what was read until then is told
        for data in chunks(file, wanted, _MOST_BYTES, entry.size):
            values = values_of(data, entry)
            bad_before = whole.count - whole.finite
            whole.add(values, seen)
            if tracked:
                _add_columns(by_column, values, seen, rows, columns, header.fortran)
            if bad_rows is not None and whole.count - whole.finite > bad_before:
                bad_rows.add(values, seen)
            seen += len(values)
    lines = [f"all entries: {whole.text()}"]
    if seen * entry.size < wanted:
        lines[0] = f"the first {seen} of {math.prod(header.shape)} entries: {whole.text()}"
    if whole.distinct_text() and (not entry.is_float or len(header.shape) == 1):
        lines.append(f"how often each value: {whole.distinct_text()}")
    if bad_rows is not None and bad_rows.rows:
        lines.append(bad_rows.text())
    return lines + _column_lines(by_column)


def _add_columns(
    by_column: list[Statistics], values: Sequence[float], seen: int, rows: int, columns: int, fortran: bool
) -> None:
    if fortran:
        position = 0
        while position < len(values):
            column, row = divmod(seen + position, rows)
            part = values[position : position + rows - row]
            if column < len(by_column):
                by_column[column].add(part, row)
            position += len(part)
        return
    for offset in range(min(columns, len(values))):
        part = values[offset::columns]
        row, column = divmod(seen + offset, columns)
        by_column[column].add(part, row)


class _BadRows:
    """Rows that hold an entry that is not finite."""

    def __init__(self, rows: int, columns: int, fortran: bool) -> None:
        self._rows, self._columns, self._fortran = rows, columns, fortran
        self.rows: set[int] = set()

    def add(self, values: Sequence[float], seen: int) -> None:
        for position, value in enumerate(values, seen):
            if not math.isfinite(value):
                self.rows.add(position % self._rows if self._fortran else position // self._columns)

    def text(self) -> str:
        first = ", ".join(map(str, sorted(self.rows)[:5]))
        return f"{len(self.rows)} rows hold an entry that is not finite; first rows (from 0): {first}"


def _column_lines(by_column: list[Statistics]) -> list[str]:
    if not by_column:
        return []
    constant = [number for number, column in enumerate(by_column) if column.finite and column.least == column.most]
    lines = [f"constant columns: {', '.join(map(str, constant[:40]))}"] if constant else []
    lines += [f"column {number}: {column.text()}" for number, column in enumerate(by_column[:_MOST_COLUMNS])]
    if len(by_column) > _MOST_COLUMNS:
        rest = by_column[_MOST_COLUMNS:]
        widest = max((column.std for column in rest if column.finite), default=0.0)
        lines.append(f"... and {len(rest)} more columns, standard deviation {short(widest)} at most")
    return lines
