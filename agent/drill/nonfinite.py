"""NaN or Inf: the first non-finite value, forward then backward, and what went into it one step earlier."""

from __future__ import annotations

import math

from weaklink.agent.drill.page import ControlPlan, DrillPage, choice, norms, wiring_first
from weaklink.agent.drill.shapes import Measurement
from weaklink.agent.reporters.text import number
from weaklink.collector.evidence import Evidence, Value

HALF = 0.5


def measure(evidence: Evidence) -> Measurement:
    """The operation that makes the first value that is not finite, and the size of the step before it."""
    onset, row = first_broken(evidence), evidence.row("GRADIENT/origin")
    values: dict[str, Value] = {"first_loss": onset}
    texts = [f"the loss is first not finite at backward call {onset}"] if onset is not None else []
    reading = "not located"
    if row is not None and row.status == "evidence":
        values |= {"operation": row.values.get("operation"), "direction": row.values.get("direction"), "step": row.step}
        reading = f"{row.values.get('operation')}, {row.values.get('direction')}"
        texts.insert(0, row.text)
    before = [step for step in evidence.steps if row is not None and row.step is not None and step.step < row.step]
    if before and (found := norms(before[-1])) is not None and found[2] > 0:
        ratio = found[1] / found[2]
        texts.append(f"the step before it, {before[-1].step}, moved the parameters by {number(ratio)} of their norm")
        values["moved_before"] = ratio
    text = "; ".join(texts) or "no value that is not finite was located"
    return Measurement(text=text, reading=reading, values=values)


def first_broken(evidence: Evidence) -> int | None:
    """The first backward call whose loss is not finite."""
    losses = zip(evidence.losses.index, evidence.losses.value, strict=True)
    return next((index for index, value in losses if not math.isfinite(value)), None)


def control(evidence: Evidence, measured: Measurement) -> ControlPlan | None:
    """Half the rate: the inputs of that operation are what the steps made of them, or would break it anyway."""
    question = "did the steps drive the operation's inputs there, or does it break whatever they are?"
    return ControlPlan(question, choice("scale_lr", factor=HALF), _half)


def _half(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    before, after = first_broken(observed), first_broken(treated)
    if after is None:
        return "the steps before it", "with half the rate every loss is finite"
    if before is not None and after > before:
        return "the steps before it", f"with half the rate it breaks later: at backward call {after}, not {before}"
    return "the operation or its data", f"with half the rate it breaks as early, at backward call {after}"


def shows(evidence: Evidence) -> bool:
    """Whether a loss is not finite."""
    return evidence.branch == "nonfinite"


def holds(observed: Evidence, treated: Evidence) -> bool:
    """Every loss is finite, and what diverged first passes."""
    return first_broken(treated) is None and treated.branch != "raised" and row_ok(observed, treated)


def row_ok(observed: Evidence, treated: Evidence) -> bool:
    """Whether the first divergence passes; a row that tells of numbers not finite has nothing to tell without them."""
    first = observed.first_divergence
    found = treated.row(first.id) if first is not None else None
    return found is None or not found.diverges


PAGE = DrillPage(
    "that operation; never float64 or an epsilon somewhere first", measure, control, wiring_first, shows, holds
)
