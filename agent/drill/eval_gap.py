"""Eval gap: the same data in train and in eval mode. Stale state before "overfitting"."""

from __future__ import annotations

from weaklink.agent.drill.page import ControlPlan, DrillPage, choice, row_passes, wiring_first
from weaklink.agent.drill.shapes import Measurement
from weaklink.agent.reporters.text import number
from weaklink.collector.evidence import Evidence, Value

GAP = "EVALUATION/mode_gap"
AGREE = "the modes agree: data, weights, metric, or what does not follow the mode"
DIFFER = "the modes differ: dropout or normalisation"


def measure(evidence: Evidence) -> Measurement:
    """The loss on the same training data in both modes."""
    row = evidence.row(GAP)
    first = evidence.first_divergence
    if row is None or row.status == "not_measured":
        why = f" ({row.reason})" if row is not None and row.reason else ""
        told = f"; {first.id}: {first.text}" if first is not None else ""
        return Measurement(text=f"the two modes were not compared{why}{told}", reading="not measured")
    modules = row.values.get("modules")
    values: dict[str, Value] = {"train": row.values.get("train"), "eval": row.values.get("eval"), "modules": modules}
    return Measurement(text=row.text, reading=DIFFER if modules else AGREE, values=values)


def control(evidence: Evidence, measured: Measurement) -> ControlPlan | None:
    """Training without dropout, or with running statistics that follow the data: one of the two that differ."""
    modules = measured.values.get("modules")
    names = " ".join(map(str, modules)) if isinstance(modules, list) else ""
    if "Dropout" in names:
        return ControlPlan("is it dropout, or normalisation?", choice("without_dropout"), _without_dropout)
    if "Norm" in names:
        question = "are the running statistics stale, or the model they belong to?"
        return ControlPlan(question, choice("batchnorm_momentum"), _with_statistics)
    return None


def _without_dropout(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    closed, text = _closes(observed, treated)
    return ("dropout" if closed else "normalisation, or another state"), f"trained without dropout, {text}"


def _with_statistics(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    closed, text = _closes(observed, treated)
    return ("stale statistics" if closed else "the model itself"), f"with statistics that follow the data, {text}"


def _closes(observed: Evidence, treated: Evidence) -> tuple[bool, str]:
    """Whether the first divergence is gone, and the gap as it is now."""
    row, gap = observed.first_divergence, treated.row(GAP)
    train, other = (gap.values.get("train"), gap.values.get("eval")) if gap is not None else (None, None)
    told = "the two modes were not compared"
    if isinstance(train, float) and isinstance(other, float):
        told = f"the loss is {number(train)} in train mode and {number(other)} in eval mode"
    passes = row_passes(observed, treated)
    verb = "diverges no more" if passes else "still diverges, or is not measured"
    return passes, f"{told}; {row.id if row is not None else 'the row'} {verb}"


def shows(evidence: Evidence) -> bool:
    """Whether a row of the evaluation diverges."""
    first = evidence.first_divergence
    return first is not None and first.boundary == "EVALUATION"


PAGE = DrillPage('stale state before "overfitting"', measure, control, wiring_first, shows, row_passes)
