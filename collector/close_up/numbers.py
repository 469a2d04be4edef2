"""A Python number that remembers which tensor it was read from, through the arithmetic of the script.

Only in the close-up, whose run is thrown away: `.item()` answers with one, and a loss that is rebuilt from it can be
traced back to the line at which its history ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")


class Number(float):
    """A float like any other, with `sources`: what it was computed from."""

    sources: tuple[Any, ...]

    def __new__(cls, value: float, sources: tuple[Any, ...]) -> Number:
        made = super().__new__(cls, value)
        made.sources = sources
        return made

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)  # what leaves the process, or is copied, is a plain number

    def __neg__(self) -> Number:
        return Number(-float(self), self.sources)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return Number(abs(float(self)), self.sources)


def _remembering(name: str) -> Callable[[Number, Any], Any]:
    plain = getattr(float, name)

    @functools.wraps(plain)
    def operator(self: Number, other: Any, *rest: Any) -> Any:
        found = plain(self, other, *rest)
        if type(found) is not float:
            return found
        theirs = other.sources if isinstance(other, Number) else ()
        return Number(found, tuple(dict.fromkeys((*self.sources, *theirs))))

    return operator


for _name in _ARITHMETIC:
    setattr(Number, f"__{_name}__", _remembering(f"__{_name}__"))
    setattr(Number, f"__r{_name}__", _remembering(f"__r{_name}__"))
