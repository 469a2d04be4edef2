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
