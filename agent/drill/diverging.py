"""Diverging: how long the steps are against what they move. The learning rate, then clipping, one at a time."""

from __future__ import annotations

import math

from weaklink.agent.drill.page import ControlPlan, DrillPage, asked, choice, deciding_freely, distinct, norms
from weaklink.agent.drill.shapes import Measurement
from weaklink.agent.proposal import ExperimentChoice
from weaklink.agent.reporters.text import number
from weaklink.collector.evidence import Evidence, Value

BROKEN = ("diverging", "nonfinite")
HALF, SMALLER = 0.5, (0.1, 0.01)
OUTGROWN, SHORT = "steps outgrow the parameters", "steps shorter than the parameters"


def measure(evidence: Evidence) -> Measurement:
    """Update norm against parameter norm, at the first sampled step and where it is largest."""
    taken = [(step.step, norms(step)) for step in evidence.steps]
    ratios = {step: found[1] / found[2] for step, found in taken if found is not None and found[2] > 0}
    if not ratios:
        return Measurement(text="no step was sampled", reading="not measured")
    first, largest = min(ratios), max(ratios, key=lambda step: _size(ratios[step]))
    text = (
        f"update norm / parameter norm {number(ratios[first])} at step {first}, at most {number(ratios[largest])} at "
        f"step {largest}"
    )
    values: dict[str, Value] = {"first": ratios[first], "largest": ratios[largest], "largest_at": largest}
    return Measurement(text=text, reading=OUTGROWN if _size(ratios[largest]) > 1 else SHORT, values=values)


def _size(ratio: float) -> float:
    return math.inf if math.isnan(ratio) else ratio


def control(evidence: Evidence, measured: Measurement) -> ControlPlan | None:
    """Half the rate from the same state."""
    return ControlPlan("is it the size of the steps, or their direction?", choice("scale_lr", factor=HALF), _half)


def _half(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    if treated.branch not in BROKEN:
        return "the size of the steps", f"with half the rate the loss no longer diverges ({treated.branch})"
    if _rise(treated) < _rise(observed):
        return "the size of the steps", "with half the rate the loss diverges more slowly"
    return "not the rate alone", "with half the rate the loss diverges as far"


def _rise(evidence: Evidence) -> float:
    losses = evidence.losses.value
    highest = max((loss if math.isfinite(loss) else math.inf for loss in losses), default=0.0)
    return highest - (losses[0] if losses and math.isfinite(losses[0]) else 0.0)


def fixes(evidence: Evidence) -> list[ExperimentChoice]:
    """What fails before the rate; then the rate, ten times and a hundred times smaller; then clipping.

    The playbook's own factor makes steps that nobody suspects, which is too small to learn with. Clipping is to the
    norm of the first gradient.
    """
    first = next((found[0] for step in evidence.steps if (found := norms(step)) is not None and found[0] > 0), None)
    clipping = [] if first is None or not math.isfinite(first) else [choice("clip_grad_norm", max=first)]
    before = [each for each in asked(evidence) if each.name != "scale_lr"]
    rates = [choice("scale_lr", factor=factor) for factor in SMALLER]
    return [*before, *rates, *distinct([*clipping, *deciding_freely(evidence)])]


def shows(evidence: Evidence) -> bool:
    """Whether the loss rises, or ends in numbers that are not finite."""
    return evidence.branch in BROKEN


def holds(observed: Evidence, treated: Evidence) -> bool:
    """The loss ends below where it began, and stays finite."""
    return treated.branch not in (*BROKEN, "raised", "not_measured", "flat", "noisy_plateau")


PAGE = DrillPage("the learning rate, then clipping, one at a time", measure, control, fixes, shows, holds)
