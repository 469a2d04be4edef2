"""Shell-style patterns over parameter names: the short one a person would write."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from fnmatch import fnmatchcase


def common_pattern(names: Sequence[str]) -> str:
    """A pattern that matches all the names: the name itself, their common module followed by `.*`, or `*`."""
    if not names:
        return "*"
    if len(names) == 1:
        return glob.escape(names[0])
    shared: list[str] = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return glob.escape(".".join(shared)) + ".*" if shared else "*"


def exact_pattern(names: Sequence[str], others: Sequence[str]) -> str | None:
    """A pattern over as many of the names as can be and none of the others; None where there is none."""
    candidates = {common_pattern(names)}
    candidates |= {glob.escape(name.rpartition(".")[0]) + ".*" for name in names if "." in name}
    candidates |= {glob.escape(name.partition(".")[0]) + ".*" for name in names if "." in name}
    candidates |= {glob.escape(name) for name in names[:50]}
    clean = [c for c in candidates if not any(fnmatchcase(other, c) for other in others)]
    return max(clean, key=lambda c: (sum(fnmatchcase(name, c) for name in names), -len(c), c), default=None)


def part_by_part(names: Sequence[str], others: Sequence[str]) -> str | None:
    """One pattern over all the names and none of the others, `*` for each part in which they differ; None without one.

    The names must have as many parts each: `blocks.0.scale` and `blocks.1.scale` give `blocks.*.scale`.
    """
    parts = [name.split(".") for name in names]
    if len(set(map(len, parts))) != 1:
        return None
    columns = [set(column) for column in zip(*parts, strict=True)]
    pattern = ".".join(glob.escape(column.pop()) if len(column) == 1 else "*" for column in columns)
    return None if any(fnmatchcase(other, pattern) for other in others) else pattern
