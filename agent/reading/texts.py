"""A text file's lines as they may be shown: read once from the disk, decoded, secrets masked."""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from typing import BinaryIO

from weaklink.agent.reading.decoding import LONGEST_LINE, decoded, is_text
from weaklink.agent.reading.masks import masked_lines
from weaklink.agent.reading.secret_names import MASK, names_secrets

_CODE = frozenset(
    {
        ".py", ".pyi", ".pyx", ".ipynb", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".js",
        ".ts", ".go", ".rs", ".java", ".scala", ".jl", ".lua", ".r", ".m", ".proto",
    }
)  # fmt: skip
_TABLES = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Text:
    """A text file.

    Attributes:
        name: As it is shown and cited.
        lines: Its lines, each up to `LONGEST_LINE` characters, secrets masked. Neither escaped nor cut for showing.
        encoding: In words.
        size: Bytes of the file.
        whole: Whether all of it was read; else the lines are those of its first bytes.
        sha256: Of its bytes; None where not all of them were read.
    """

    name: str
    lines: list[str]
    encoding: str
    size: int
    whole: bool
    sha256: str | None


def read_text(name: str, file: BinaryIO, size: int, most_bytes: int) -> Text | None:
    """The text, or None where the bytes are none. The file stands anywhere afterwards."""
    data = file.read(most_bytes)
    if not is_text(data):
        return None
    whole = len(data) < most_bytes or not file.read(1)
    sha256 = hashlib.sha256(data).hexdigest() if whole else None
    found = decoded(data, cut=not whole)
    return Text(name, masked(name, found.lines), found.encoding, max(size, len(data)), whole, sha256)


def masked(name: str, lines: list[str]) -> list[str]:
    """All lines of a file, secrets masked, each at most `LONGEST_LINE` characters long."""
    kind = suffix(name)
    bounded = [line[:LONGEST_LINE] for line in lines]
    if kind in _TABLES and bounded:
        bounded = _columns_masked(bounded, _TABLES[kind])
    return masked_lines(bounded, code=kind in _CODE)


def is_code(name: str) -> bool:
    """Whether the name is that of program text, where only what is quoted is a value."""
    return suffix(name) in _CODE


def suffix(name: str) -> str:
    """The ending of a file's name, from its last dot, in lower case."""
    base = name.rsplit("/", 1)[-1]
    return "." + base.rsplit(".", 1)[-1].lower() if "." in base else ""


def _columns_masked(lines: list[str], delimiter: str) -> list[str]:
    """A table whose head names columns of secrets, with their cells masked."""
    head = _cells(lines[0], delimiter)
    secret = [position for position, name in enumerate(head) if names_secrets(name)]
    if not secret:
        return lines
    return [lines[0], *(_row_masked(line, delimiter, secret) for line in lines[1:])]


def _row_masked(line: str, delimiter: str, secret: list[int]) -> str:
    cells = _cells(line, delimiter)
    for position in secret:
        if position < len(cells) and cells[position]:
            cells[position] = MASK
    written = io.StringIO()
    csv.writer(written, delimiter=delimiter, lineterminator="").writerow(cells)
    return written.getvalue()


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return line.split(delimiter)
