"""Lines of the settings and sources that a run read, found by what stands in them. They name places, no verdict."""

from __future__ import annotations

import re
from pathlib import Path

from weaklink.collector.evidence import Site
from weaklink.collector.watching.files import FilesRecord

_QUOTED = r"(?:\"[^\"\n]{1,80}\"|'[^'\n]{1,80}')"
_LIST = re.compile(rf"\[\s*({_QUOTED}(?:\s*,\s*{_QUOTED})+)\s*,?\s*\]")
_WORD = re.compile(r"\"([^\"\n]{1,80})\"|'([^'\n]{1,80})'")
TEXT_BYTES = 1024 * 1024


def reordered_lists(record: FilesRecord) -> list[Site]:
    """Lists of names that stand twice in the settings or the sources, in another order: the later one first."""
    first: dict[frozenset[str], tuple[list[str], Site]] = {}
    found: list[Site] = []
    for name, text in _texts(record):
        for match in _LIST.finditer(text):
            words = [double or single for double, single in _WORD.findall(match[1])]
            if len(set(words)) < max(len(words), 2):
                continue
            line = text.count("\n", 0, match.start()) + 1
            known, where = first.setdefault(frozenset(words), (words, Site(file=name, line=line, what="names listed")))
            if known != words:
                what = f"the same names as at {where.place}, in another order"
                found += [Site(file=name, line=line, what=what), where]
    return found


def lines_with(record: FilesRecord, pattern: str, what: str) -> list[Site]:
    """Lines that match, settings before sources."""
    wanted = re.compile(pattern, re.IGNORECASE)
    return [
        Site(file=name, line=number, what=what)
        for name, text in _texts(record)
        for number, line in enumerate(text.splitlines(), 1)
        if wanted.search(line) and not line.lstrip().startswith(("#", "//"))
    ]


def _texts(record: FilesRecord) -> list[tuple[str, str]]:
    """Name and text of each settings file, then of each source."""
    found = []
    places = [(file.name, file.path) for file in record.settings()] + sorted(record.sources.items())
    for name, path in places:
        try:
            if Path(path).stat().st_size <= TEXT_BYTES:
                found.append((name, Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found
