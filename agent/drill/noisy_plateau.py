"""Noisy plateau: the spread over batches and over seeds, and the same seeds without and with the fix."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from weaklink.agent.drill.page import ControlPlan, DrillPage, Pair, asked, choice, deciding_freely, distinct, tail
from weaklink.agent.drill.shapes import Measurement
from weaklink.agent.proposal import ExperimentChoice
from weaklink.agent.reporters.text import number
from weaklink.collector.evidence import Evidence, Value

HALF, SMALLER = 0.5, 0.1
SHARE = 0.5  # of the losses, from the end: what is called the plateau


def plateau(evidence: Evidence) -> list[float]:
    """The second half of the losses."""
    values = evidence.losses.value
    return values[int(len(values) * SHARE) :]


def measure(evidence: Evidence) -> Measurement:
    """The mean of the plateau and the spread of its batches."""
    values = plateau(evidence)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return Measurement(text="fewer than two losses stand on the plateau", reading="not measured")
    level, spread = statistics.fmean(values), statistics.stdev(values)
    text = f"the last {len(values)} losses have mean {number(level)} and spread {number(spread)} over batches"
    found: dict[str, Value] = {"mean": level, "spread": spread, "losses": len(values)}
    return Measurement(text=text, reading="the spread over batches hides any change", values=found)


def control(evidence: Evidence, measured: Measurement) -> ControlPlan | None:
    """Half the rate with the same seed: noise that the steps themselves make shrinks with them."""
    return ControlPlan("do the steps make the noise, or the data?", choice("scale_lr", factor=HALF), _half)


def _half(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    before, after = plateau(observed), plateau(treated)
    pair = f"mean {number(statistics.fmean(after))}, {number(statistics.fmean(before))} without"
    if below(before, after):
        return "the steps", f"with half the rate and the same seed the plateau is lower: {pair}"
    return "not the rate alone", f"with half the rate and the same seed the plateau is as high: {pair}"


def fixes(evidence: Evidence) -> list[ExperimentChoice]:
    """What diverges first, then a smaller rate."""
    return distinct([*asked(evidence), choice("scale_lr", factor=SMALLER), *deciding_freely(evidence)])


def shows(evidence: Evidence) -> bool:
    """Whether the losses do not fall beyond their noise."""
    return evidence.branch in ("noisy_plateau", "flat")


def holds(observed: Evidence, treated: Evidence) -> bool:
    """The end of the losses lies lower by more than both ends' noise."""
    return below(tail(observed), tail(treated))


def below(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the mean is lower by more than two standard errors of the difference."""
    if min(len(before), len(after)) < 2 or not all(map(math.isfinite, [*before, *after])):
        return False
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(after) / len(after))
    return statistics.fmean(before) - statistics.fmean(after) > 2 * error


def together(pairs: Sequence[Pair]) -> tuple[bool, str]:
    """Every seed's end with the fix lies below every seed's end without it."""
    before = [statistics.fmean(tail(one)) for one, _ in pairs]
    after = [statistics.fmean(tail(other)) for _, other in pairs]
    apart = max(after) < min(before)
    ranges = f"{_range(after)} with it, {_range(before)} without"
    return apart, f"the ranges over seeds {'are apart' if apart else 'meet'}: {ranges}"


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


PAGE = DrillPage("two more seeds before any claim", measure, control, fixes, shows, holds, together)
