"""In what the dataset of an evaluation differs from the one that was trained on: settings and transforms, not rows."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from weaklink.collector.evidence import Site
from weaklink.collector.watching.sites import UserCode

_SETTINGS = (bool, int, float, str, type(None))
# Names of splits and counts of rows differ by right.
_LIMIT = 8


@dataclass
class DatasetDifference:
    """One attribute that differs; `sites` are the lines of the dataset's own code that read it."""

    name: str
    train: str
    evaluation: str
    sites: list[Site] = field(default_factory=list)


def differences(train: Any, evaluation: Any, code: UserCode) -> list[DatasetDifference]:
    """Attributes of two datasets of one class that differ; none where the classes do, or both are parts of one."""
    train, evaluation = _inner(train), _inner(evaluation)
    if type(train) is not type(evaluation) or train is evaluation or not hasattr(train, "__dict__"):
        return []
    found: list[DatasetDifference] = []
    for name, value in vars(train).items():
        other = vars(evaluation).get(name)
        if _differ(value, other) and len(found) < _LIMIT:
            found.append(DatasetDifference(name, _shown(value), _shown(other), _readers(type(train), name, code)))
    return found


def _inner(dataset: Any) -> Any:
    """The dataset that a subset is of."""
    for _ in range(4):
        inner = getattr(dataset, "dataset", None)
        if inner is None or not hasattr(dataset, "indices"):
            break
        dataset = inner
    return dataset


def _differ(value: Any, other: Any) -> bool:
    if isinstance(value, bool) or isinstance(other, bool) or value is None or other is None:
        return value is not other and isinstance(value, _SETTINGS) and isinstance(other, _SETTINGS)
    return callable(value) and callable(other) and value is not other and _parts(value) != _parts(other)


def _parts(transform: Any) -> list[str]:
    """The names of what a transform is made of, itself first."""
    lists = [value for value in getattr(transform, "__dict__", {}).values() if isinstance(value, (list, tuple))]
    inner = [item for value in lists for item in value]
    return [_name(transform), *(_name(item) for item in inner[:32])]


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, _SETTINGS) else ", ".join(_parts(value))[:160]


def _readers(kind: type, name: str, code: UserCode) -> list[Site]:
    """Lines of `__getitem__` that read the attribute, else where it begins."""
    method = getattr(kind, "__getitem__", None) or getattr(kind, "__iter__", None)
    try:
        lines, first = inspect.getsourcelines(method)  # type: ignore[arg-type]
        file = code.relative(inspect.getsourcefile(method) or "")  # type: ignore[arg-type]
    except (OSError, TypeError):
        return []
    if file is None:
        return []
    using = [first + n for n, line in enumerate(lines) if re.search(rf"\bself\.{re.escape(name)}\b", line)]
    return [Site(file=file, line=line, what=f"the dataset reads its {name}") for line in (using or [first])[:2]]
