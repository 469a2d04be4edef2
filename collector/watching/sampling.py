"""Which optimizer steps are looked at closely."""

from __future__ import annotations

DENSE_STEPS = 5
_LATER = (1, 2, 5)


def is_sampled(step: int, every_step_until: int = DENSE_STEPS) -> bool:
    """Whether step `step` (from 1) is sampled: all of the first ones, then 10, 20, 50, 100, 200, 500, ..."""
    if step <= every_step_until:
        return True
    magnitude = 10 ** (len(str(step)) - 1)
    return step % magnitude == 0 and step // magnitude in _LATER
