"""Flat: no gradient, gradients without movement, or movement that the loss ignores. Wiring before architecture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weaklink.agent.drill.page import ControlPlan, DrillPage, choice, norms, row_passes, wiring_first
from weaklink.agent.drill.shapes import Measurement
from weaklink.agent.proposal import ExperimentChoice
from weaklink.agent.reporters.text import number
from weaklink.collector.evidence import Evidence, ParameterRecord, Value

FLAT = ("flat", "slow")
NO_GRADIENT, NO_MOVEMENT, IGNORED = "no gradient", "gradients, no movement", "movement that the loss ignores"
UNKNOWN = "not measured"
# A rate for a run whose own is 0: the optimizer of the control must be able to move something.
SOME_RATE = 0.01
LARGER = 10.0


def measure(evidence: Evidence) -> Measurement:
    """Gradient norm and movement of what is meant to learn; and, where steps were sampled, both a step."""
    learning = [record for record in evidence.parameters if record.in_model and record.requires_grad]
    states = [record.gradient for record in learning if record.gradient is not None]
    if not states:
        return Measurement(text="no backward call was sampled", reading=UNKNOWN)
    gradient, movement = _norm(learning, "gradient_norm_first"), _norm(learning, "delta_net")
    if "nonzero" not in states:
        reading = NO_GRADIENT
    else:
        reading = IGNORED if any(record.moved for record in learning) else NO_MOVEMENT
    text = (
        f"{len(learning)} parameters are to learn: {states.count('nonzero')} receive a gradient (norm "
        f"{number(gradient)} at first), {sum(bool(record.moved) for record in learning)} move (by "
        f"{number(movement)} in all)"
    )
    values: dict[str, Value] = {"gradient_first": gradient, "movement": movement}
    found = [taken for step in evidence.steps if (taken := norms(step)) is not None]
    if found:
        text += f"; update norm {number(found[0][1])} at the first sampled step, {number(found[-1][1])} at the last"
        values |= {"update_first": found[0][1], "update_last": found[-1][1]}
    return Measurement(text=text, reading=reading, values=values)


def _norm(records: Sequence[ParameterRecord], field: str) -> float:
    """Over all of them; what was not measured counts nothing."""
    return math.hypot(*(getattr(record, field) or 0.0 for record in records))


def control(evidence: Evidence, measured: Measurement) -> ControlPlan | None:
    """Other first weights, a plain optimizer, or broken pairs: whichever splits what was measured."""
    if measured.reading == NO_GRADIENT:
        question = "is the graph cut, or are the units dead?"
        return ControlPlan(question, choice("reinitialize"), _gradients)
    if measured.reading == NO_MOVEMENT:
        rates = [rate for step in evidence.steps for rate in step.lr if rate > 0]
        question = "does the optimizer lose the update, or is there nothing to take when it steps?"
        return ControlPlan(question, choice("fresh_optimizer", kind="SGD", lr=rates[0] if rates else SOME_RATE), _moves)
    if measured.reading == IGNORED:
        question = "does the loss depend on which target belongs to which input?"
        return ControlPlan(question, choice("permute_targets"), _pairs)
    return None


def _gradients(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    measured = measure(treated)
    if measured.reading == NO_GRADIENT:
        return "the graph", f"with other first weights still no gradient arrives: {measured.text}"
    return "dead units", f"with other first weights gradients arrive: {measured.text}"


def _moves(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    measured = measure(treated)
    if measured.reading == IGNORED:
        return "ownership or the optimizer", f"a plain optimizer over the model moves it: {measured.text}"
    return "clearing, or a missing step", f"a plain optimizer moves nothing either: {measured.text}"


def _pairs(observed: Evidence, treated: Evidence) -> tuple[str, str]:
    losses = observed.losses.value, treated.losses.value
    if losses[0] == losses[1]:
        return "the objective", "with the targets permuted every loss is the same, bit for bit"
    return "the task, the rate or the model", "with the targets permuted the losses are others"


def fixes(evidence: Evidence) -> list[ExperimentChoice]:
    """What the first divergence asks for; a larger rate only where no row diverges."""
    return wiring_first(evidence) if evidence.first_divergence is not None else [choice("scale_lr", factor=LARGER)]


def shows(evidence: Evidence) -> bool:
    """Whether the loss stays, or hardly falls."""
    return evidence.branch in FLAT


def holds(observed: Evidence, treated: Evidence) -> bool:
    """The loss falls, and what diverged first passes: a loss that falls for another reason is no fix."""
    return treated.branch in ("learning", "silently_wrong", "eval_gap") and row_passes(observed, treated)


PAGE = DrillPage("wiring before architecture", measure, control, fixes, shows, holds)
