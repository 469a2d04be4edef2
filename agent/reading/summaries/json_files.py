"""`.json` and `.jsonl`: what is at the top, and the keys of many records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from weaklink.agent.reading.decoding import decoded, shown_name
from weaklink.agent.reading.secret_names import names_secrets
from weaklink.agent.reading.summaries.source import Source

_MOST_BYTES = 16 * 2**20
_MOST_KEYS = 60
_MOST_RECORDS = 50_000
_FEW = 12  # distinct values that are counted


def json_lines(source: Source) -> list[str]:
    """Number of records, their keys, the types of their values."""
    data = source.read(_MOST_BYTES)
    cut = source.size > len(data)
    records, broken, seen = 0, 0, _Records()
    for line in decoded(data, cut).lines[:_MOST_RECORDS]:
        if not line.strip():
            continue
        if records % 256 == 0:
            source.check_time()
        records += 1
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            broken += 1
            continue
        seen.add(record)
    part = f" in the first {len(data) // 2**20} MiB" if cut else ""
    lines = [f"{records} lines of JSON{part}" + (f", {broken} of them broken" if broken else "")]
    return lines + seen.text(records - broken)


def json_file(source: Source) -> list[str]:
    """What is at the top, and the keys of records in a list.

    Raises:
        ValueError: It is no JSON, or too large to be read whole.
    """
    if source.size > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES // 2**20} MiB are not parsed")
    value = json.loads("\n".join(decoded(source.read(_MOST_BYTES)).lines))
    if isinstance(value, dict):
        told = [f"{shown_name(str(key)[:100])}  {_type(inner)}" for key, inner in list(value.items())[:_MOST_KEYS]]
        more = [f"... and {len(value) - _MOST_KEYS} more keys"] if len(value) > _MOST_KEYS else []
        return [f"an object of {len(value)} keys", *told, *more]
    if isinstance(value, list):
        seen = _Records()
        for record in value:
            seen.add(record)
        return [f"a list of {len(value)}", *seen.text(len(value))]
    return [f"one {_type(value)}"]


class _Records:
    """Keys of many records, the types of their values, and how often each value where they are few."""

    def __init__(self) -> None:
        self._others: Counter[str] = Counter()
        self._keys: dict[str, _Key] = {}

    def add(self, record: Any) -> None:
        if not isinstance(record, dict):
            self._others[_type(record, counted=False)] += 1
            return
        for key, value in record.items():
            if key in self._keys or len(self._keys) < 1000:
                self._keys.setdefault(key, _Key()).add(value)

    def text(self, records: int) -> list[str]:
        lines = [f"{count} are {name}" for name, count in self._others.most_common()]
        ordered = sorted(self._keys.items(), key=lambda each: -each[1].types.total())
        lines += [f"key {shown_name(name[:100])}{key.text(name, records)}" for name, key in ordered[:_MOST_KEYS]]
        return lines + ([f"... and {len(ordered) - _MOST_KEYS} more keys"] if len(ordered) > _MOST_KEYS else [])


@dataclass
class _Key:
    types: Counter[str] = field(default_factory=Counter)
    values: Counter[str] | None = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        self.types[_type(value, counted=False)] += 1
        if self.values is None:
            return
        if isinstance(value, dict | list) or (isinstance(value, str) and len(value) > 40):
            self.values = None
            return
        self.values[json.dumps(value)] += 1
        if len(self.values) > _FEW:
            self.values = None

    def text(self, name: str, records: int) -> str:
        count = self.types.total()
        told = "" if count == records else f" in {count} of {records}"
        told += "  " + ", ".join(f"{kind} {number}" for kind, number in self.types.most_common(5))
        if self.values and not names_secrets(name) and len(self.values) < count:
            counts = ", ".join(f"{value}: {number}" for value, number in self.values.most_common())
            told += f"; counts {counts}"
        return told


def _type(value: Any, counted: bool = True) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    size = f" of {len(value)}" if counted else ""
    return ("list" if isinstance(value, list) else "object") + size
