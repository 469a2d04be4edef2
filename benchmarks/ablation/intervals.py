"""Shares with their uncertainty, and two arms compared on the same cases."""

from __future__ import annotations

import math
from collections.abc import Iterable

Z = 1.959963984540054  # two-sided 95 %


def wilson(hits: int, tries: int, z: float = Z) -> tuple[float, float]:
    """Wilson's score interval of a share; it stays inside 0 and 1, and is honest about small numbers.

    Args:
        hits: How many of the tries count.
        tries: None at all says nothing: (0, 1).
        z: Quantile of the normal distribution.

    Raises:
        ValueError: More hits than tries, or less than none.
    """
    if not 0 <= hits <= tries:
        raise ValueError(f"{hits} of {tries} is no share")
    if not tries:
        return 0.0, 1.0
    share, spread = hits / tries, z * z / tries
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / tries + spread / (4 * tries)) / (1 + spread)
    # The ends are exact where all or none count; rounding must not leave 0.9999999999999999 there.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    return low, 1.0 if hits == tries else min(1.0, centre + half)


def share(hits: int, tries: int) -> str:
    """`5/8 (63 %, 31-86)`: the count, the share and its interval in per cent."""
    if not tries:
        return "none"
    low, high = wilson(hits, tries)
    return f"{hits}/{tries} ({100 * hits / tries:.0f} %, {100 * low:.0f}-{100 * high:.0f})"


def paired(pairs: Iterable[tuple[bool, bool]]) -> tuple[int, int, float]:
    """How often only the second of two was right, how often only the first, and the exact sign test's p.

    Cases on which both were right, or both wrong, say nothing about the difference. p is two-sided; without any
    difference it is 1.
    """
    gained = lost = 0
    for first, second in pairs:
        gained += second and not first
        lost += first and not second
    differing = gained + lost
    tail = sum(math.comb(differing, k) for k in range(min(gained, lost) + 1))
    return gained, lost, min(1.0, 2 * tail / 2**differing)
