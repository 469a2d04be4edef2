"""Which of the known pictures a loss curve shows. A description for the reader: no row and no verdict rests on it."""

from __future__ import annotations

import math
import statistics

from weaklink.collector.evidence import Branch, Row, first_divergence

# Losses needed before a curve is called anything.
SHORTEST = 4
# A fall below this share of the first loss is called flat; one within twice its own standard error too, or a noisy
# plateau where that error is the larger of the two.
FLAT_SHARE = 0.02
SLOW_SHARE = 0.2


def name_branch(losses: list[float], raised: bool, rows: list[Row]) -> Branch:
    """The branch of the run.

    Args:
        losses: Loss by backward call, in order.
        raised: Whether the script ended in an exception.
        rows: The chain; a curve that falls while a row fails is `silently_wrong`, or an `eval_gap` where the first one
            that fails is of the evaluation.
    """
    if raised:
        return "raised"
    if any(not math.isfinite(loss) for loss in losses):
        return "nonfinite"
    if len(losses) < SHORTEST:
        return "not_measured"
    size = max(1, min(50, len(losses) // 5))
    first, last = losses[:size], losses[-size:]
    start, end = statistics.fmean(first), statistics.fmean(last)
    spread = (statistics.pvariance(first) / size + statistics.pvariance(last) / size) ** 0.5
    fall = start - end
    # A loss that grows by a factor a step has a spread as large as itself, and no noise that could explain it.
    apart = min(last) > max(first) or max(last) < min(first)
    noise, still = 0.0 if apart or size == 1 else 2.0 * spread, FLAT_SHARE * abs(start)
    if abs(fall) <= max(noise, still):
        return "noisy_plateau" if noise > still else "flat"
    if fall < 0:
        return "diverging"
    divergence = first_divergence(rows)
    if divergence is not None and divergence.status == "fail":
        return "eval_gap" if divergence.boundary == "EVALUATION" else "silently_wrong"
    return "slow" if fall < SLOW_SHARE * abs(start) else "learning"
