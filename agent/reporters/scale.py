"""Axes: which numbers are drawn where, and which ones get a tick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOG_RATIO = 1e3
TICKS = 5
# Beyond these, ten to that power is zero or infinite as a float.
SMALLEST_POWER, LARGEST_POWER = -323, 308


@dataclass(frozen=True)
class Scale:
    """Maps values onto pixels. `low` and `high` are in plotted units: decades on a logarithmic axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a finite value (positive on a logarithmic axis)."""
        plotted = math.log10(value) if self.log else value
        # Halved before subtracting: the span of two finite numbers can overflow.
        share = (plotted / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values inside the axis, in the data's own unit."""
        if not self.log:
            return _linear_ticks(self.low, self.high)
        step = max(1, math.ceil((self.high - self.low) / TICKS))
        powers = range(math.ceil(self.low), math.floor(self.high) + 1, step)
        return [10.0**power for power in powers if SMALLEST_POWER <= power <= LARGEST_POWER]


def value_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """An axis for losses: logarithmic where positive values span more than three decades."""
    log = bool(values) and min(values) > 0 and max(values) / min(values) > LOG_RATIO
    plotted = [math.log10(value) for value in values] if log else list(values)
    low, high = _room(min(plotted, default=0.0), max(plotted, default=1.0))
    if log:
        low, high = math.floor(low), math.ceil(high)
    return Scale(low, high, start, end, log)


def count_scale(counts: Sequence[int], start: float, end: float) -> Scale:
    """An axis for calls, from 1."""
    low, high = min(counts, default=1), max(counts, default=1)
    return Scale(low, high if high > low else low + 1, start, end)


def _room(low: float, high: float) -> tuple[float, float]:
    """A little air above and below; a constant series stands in the middle."""
    margin = (high / 2 - low / 2) * 0.1 or abs(high) * 0.05 or 1.0
    below, above = low - margin, high + margin
    return (below if math.isfinite(below) else low, above if math.isfinite(above) else high)


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high / 2 - low / 2) / TICKS * 2
    if not math.isfinite(rough) or rough <= 0:
        return [low, high]
    unit = 10.0 ** math.floor(math.log10(rough))
    if unit == 0.0:
        return [low, high]
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.ceil(low / step), math.floor(high / step)
    if last - first > 4 * TICKS or not math.isfinite(step):
        return [low, high]
    return [index * step for index in range(first, last + 1)]
