"""Statistics of numbers in bytes, chunk by chunk, with the standard library alone.

`math.dist` and `math.hypot` run over a chunk in C and do not overflow: sums of squares come from them.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_DISTINCT = 24
_KEPT_INDICES = 3


@dataclass(frozen=True)
class Kind:
    """How an entry is stored. `code` is `struct`'s; `bfloat16` has none there and is read as `H`."""

    name: str
    code: str
    size: int
    little: bool = True

    @property
    def is_float(self) -> bool:
        """Whether entries can be other than finite."""
        return self.code in "efd" or self.name == "bfloat16"


def kind(name: str, code: str, little: bool = True) -> Kind:
    """A kind of entry by `struct`'s code."""
    return Kind(name, code, struct.calcsize("<" + code), little)


BFLOAT16 = Kind("bfloat16", "H", 2)


def values_of(data: bytes, entry: Kind) -> Sequence[float]:
    """The numbers in bytes that hold whole entries."""
    count = len(data) // entry.size
    if entry.name == "bfloat16":
        wide = bytearray(4 * count)  # a bfloat16 is the upper half of a float32
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return struct.unpack(f"<{count}f", wide)
    return struct.unpack(f"{'<' if entry.little else '>'}{count}{entry.code}", data)


@dataclass
class Statistics:
    """Of a stream of numbers: moments and extremes over the finite ones, the others counted with their first places."""

    count: int = 0
    finite: int = 0
    least: float = math.inf
    most: float = -math.inf
    mean: float = 0.0
    deviations: float = 0.0  # sum of squared distances from the mean
    bad: list[int] = field(default_factory=list)
    distinct: Counter[float] | None = field(default_factory=Counter)

    def add(self, values: Sequence[float], first: int, step: int = 1) -> None:
        """Numbers at the indices `first`, `first + step`, ..."""
        self.count += len(values)
        kept: Sequence[float] = values
        if not all(map(math.isfinite, values)):
            for position, value in enumerate(values):
                if len(self.bad) == _KEPT_INDICES:
                    break
                if not math.isfinite(value):
                    self.bad.append(first + position * step)
            kept = [value for value in values if math.isfinite(value)]
        if not kept:
            return
        number = len(kept)
        mean = _mean(kept)
        distance = math.dist(kept, [mean] * number)
        deviations = distance * distance
        moved = mean - self.mean
        total = self.finite + number
        self.deviations += deviations + moved * moved * self.finite * number / total
        self.mean += moved * number / total
        self.finite = total
        self.least, self.most = min(self.least, min(kept)), max(self.most, max(kept))
        self._count_distinct(kept)

    @property
    def std(self) -> float:
        """Standard deviation over the finite entries (divided by their number)."""
        return math.sqrt(self.deviations / self.finite) if self.finite else math.nan

    @property
    def norm(self) -> float:
        """Euclidean norm of the finite entries."""
        return math.hypot(math.sqrt(self.deviations), self.mean * math.sqrt(self.finite))

    def text(self) -> str:
        """The statistics in words."""
        if not self.count:
            return "no entry"
        if not self.finite:
            return f"no finite entry among {self.count}"
        if self.least == self.most:
            told = f"constant {short(self.least)}"
        else:
            told = f"min {short(self.least)}, max {short(self.most)}, mean {short(self.mean)}, std {short(self.std)}"
        return told + self.bad_text()

    def bad_text(self) -> str:
        """What is not finite, or nothing."""
        number = self.count - self.finite
        return f", {number} not finite (first at {', '.join(map(str, self.bad))})" if number else ""

    def distinct_text(self) -> str:
        """How often each value occurs, where they are few; else nothing."""
        if not self.distinct:
            return ""
        return ", ".join(f"{short(value)}: {count}" for value, count in sorted(self.distinct.items()))

    def _count_distinct(self, values: Sequence[float]) -> None:
        if self.distinct is None:
            return
        self.distinct.update(values)
        if len(self.distinct) > MOST_DISTINCT:
            self.distinct = None


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def short(value: float) -> str:
    """A number in six digits; integers plain."""
    if isinstance(value, int) and abs(value) < 10**15:
        return str(int(value))
    return f"{float(value):.6g}" if abs(value) < 1e308 else "beyond 1e308"
