"""Tables of text, `.csv` and `.tsv`: per column its type, range, distinct values, what is missing."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from weaklink.agent.reading.decoding import decoded, shown_line, shown_name
from weaklink.agent.reading.secret_names import names_secrets
from weaklink.agent.reading.summaries.numbers import Statistics, short
from weaklink.agent.reading.summaries.source import Source

_MOST_BYTES = 16 * 2**20
_MOST_ROWS = 200_000
_MOST_COLUMNS = 60
_MOST_DISTINCT = 1000
_BATCH = 4096
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "-"))


def table(source: Source) -> list[str]:
    """Rows and columns of a table, with statistics of each column.

    Raises:
        ValueError: It is none.
    """
    data = source.read(_MOST_BYTES)
    cut = source.size > len(data)
    lines = decoded(data, cut).lines
    if not lines:
        return ["a table without a line"]
    delimiter = _delimiter(lines[0], source.name)
    rows = _rows(lines, delimiter)
    head = next(rows, [])
    named = _is_head(head)
    columns = [_Column(name if named else f"column {number}") for number, name in enumerate(head[:_MOST_COLUMNS])]
    count, ragged = _filled(source, columns, rows, head, named)
    part = f" in the first {len(data) // 2**20} MiB" if cut else ""
    more = f" ({_MOST_ROWS} at most are read)" if count >= _MOST_ROWS else ""
    told = [f"a table of {count} rows{part}{more} and {len(head)} columns{'' if named else ', no header'}"]
    if ragged:
        told.append(f"{ragged} rows have another number of cells than the first line")
    told += [column.text() for column in columns]
    if len(head) > _MOST_COLUMNS:
        told.append(f"... and {len(head) - _MOST_COLUMNS} more columns")
    return told


def _filled(
    source: Source, columns: list[_Column], rows: Iterator[list[str]], head: list[str], named: bool
) -> tuple[int, int]:
    """Puts all rows into the columns. Returns how many rows there were, and how many were of another length."""
    count = ragged = 0
    for row in rows if named else _chained(head, rows):
        if count >= _MOST_ROWS:
            break
        if count % 1024 == 0:
            source.check_time()
        count += 1
        ragged += len(row) != len(head)
        for column, cell in zip(columns, row, strict=False):
            column.add(cell)
    return count, ragged


def _chained(first: list[str], rest: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rest


@dataclass
class _Column:
    name: str
    count: int = 0
    missing: int = 0
    numbers: int = 0
    integers: int = 0
    statistics: Statistics = field(default_factory=lambda: Statistics(distinct=None))
    values: Counter[str] = field(default_factory=Counter)
    many: bool = False
    _batch: list[float] = field(default_factory=list)

    def add(self, cell: str) -> None:
        cell = cell.strip()
        self.count += 1
        if cell.casefold() in _MISSING:
            self.missing += 1
            return
        if len(self.values) < _MOST_DISTINCT or cell in self.values:
            self.values[cell[:200]] += 1
        else:
            self.many = True
        try:
            number = float(cell)
        except ValueError:
            return
        self.numbers += 1
        self.integers += math.isfinite(number) and number == int(number)
        self._batch.append(number)
        if len(self._batch) == _BATCH:
            self._flush()

    def text(self) -> str:
        self._flush()
        there = self.count - self.missing
        told = [shown_name(self.name[:100]), "", self._type(there)]
        if self.missing:
            told.append(f"{self.missing} missing")
        if self.statistics.count and self.numbers == there:
            told.append(self.statistics.text())
        told.append(f"{'more than ' if self.many else ''}{len(self.values)} distinct")
        told += self._commonest(there)
        return f"{told[0]}  {', '.join(told[2:])}"

    def _type(self, there: int) -> str:
        if not there:
            return "empty"
        if self.numbers == there:
            return "integers" if self.integers == there else "numbers"
        return f"text, {self.numbers} of {there} are numbers" if self.numbers else "text"

    def _commonest(self, there: int) -> list[str]:
        if not self.values or names_secrets(self.name):
            return []
        if not self.many and 1 < len(self.values) <= 8:
            counts = (f"{shown_line(repr(value), 40)}: {count}" for value, count in self.values.most_common())
            return [f"counts {', '.join(counts)}"]
        value, count = self.values.most_common(1)[0]
        return [f"most frequent {shown_line(repr(value), 40)} in {short(100 * count / there)} %"] if count > 1 else []

    def _flush(self) -> None:
        if self._batch:
            self.statistics.add(self._batch, self.statistics.count)
            self._batch.clear()


def _delimiter(line: str, name: str) -> str:
    if name.lower().endswith((".tsv", ".tsv.gz")):
        return "\t"
    return max(",\t;|", key=lambda each: (line.count(each), each == ","))


def _rows(lines: list[str], delimiter: str) -> Iterator[list[str]]:
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
        if row:
            yield row


def _is_head(row: list[str]) -> bool:
    """Whether a first row holds names: no number among them."""
    for cell in row:
        try:
            float(cell)
        except ValueError:
            continue
        return False
    return True
