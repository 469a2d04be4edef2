"""Settings that leave parameters out: the line whose patterns mean what no optimizer holds, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from weaklink.collector.evidence import Site
from weaklink.collector.rows.observation import Observation, names_of
from weaklink.collector.watching.files import FileRead, FilesRecord
from weaklink.collector.watching.parameters import ParameterEntry

# A text between quotes, or an entry of a list without them (YAML).
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'([^\'\n]*)\'|^\s*-\s+([^\s\'"#]+)')
_SETTINGS_BYTES = 64 * 1024


def excluding_settings(run: Observation, missing: list[ParameterEntry]) -> list[Site]:
    """Lines of the settings with a pattern for some of the missing parameters, and none for any that is held."""
    held = [name for entry in run.learning() if entry.owners for name in names_of(entry)]
    absent = [names_of(entry) for entry in missing]
    found: list[Site] = []
    for file in run.record(FilesRecord).settings():
        found += _lines(file, absent, held)
    return found


def _lines(file: FileRead, absent: list[list[str]], held: list[str]) -> list[Site]:
    try:
        text = Path(file.path).read_text(encoding="utf-8")[:_SETTINGS_BYTES]
    except (OSError, ValueError):
        return []  # it was there for the run only
    found: list[Site] = []
    for number, line in enumerate(text.splitlines(), 1):
        patterns = [text for match in _QUOTED.finditer(line) for text in match.groups() if text]
        matched = [pattern.replace("\\\\", "\\") for pattern in patterns]
        meant = any(_means(pattern, names) for pattern in matched for names in absent)
        # The names of things are words too: what a line says of parameters that are held speaks for another use.
        if meant and not any(_means(pattern, held) for pattern in matched):
            found.append(Site(file=file.name, line=number, what="a pattern that means what no optimizer holds"))
    return found


def _means(pattern: str, names: list[str]) -> bool:
    try:
        compiled = re.compile(pattern)
    except re.error:
        return False
    return any(compiled.search(name) for name in names)
