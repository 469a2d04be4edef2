"""The pages about learning rates: what a schedule made of them, a rate of zero or next to it, steps that go uphill."""

from __future__ import annotations

import math

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, movement
from weaklink.agent.proposal import ExperimentChoice, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row, Value

# All that is past when a step begins, and how many steps there are.
BEFORE_THE_STEP = ("output.first", "loss.first", "gradient.first[*]", "steps")
# The rate that torch's own Adam begins with: a control where a script has none of its own.
USUAL_RATE = 1e-3


def schedule(evidence: Evidence, row: Row) -> Proposal | None:
    """Let the schedule count what it was made for; where no count explains it, hold the rate.

    None for a row that describes and accuses nobody.
    """
    if not row.diverges:
        return None
    every = _meant_count(row)
    changes: dict[str, Expected] = {f"row[{row.id}]": PASSES, "lr.last": "different"}
    if every is not None:
        return experiment(
            evidence,
            row,
            ExperimentChoice(name="step_scheduler_per_step", parameters={"n": every}),
            [
                Candidate(
                    "rate_wrong",
                    "The schedule is stepped at another count than it was made for: once for "
                    f"{'each optimizer step' if every == 1 else f'{every} optimizer steps'} it leaves the run a rate "
                    "to learn with.",
                    changes,
                ),
                _another_reason(row, changes),
            ],
            BEFORE_THE_STEP,
            Repair(text="Step the scheduler once for each step or epoch that its numbers count.", kind="learning_rate"),
        )
    # A rate that is too low for most of a run is only the cause if the run comes further at the one it was given.
    warming = "peak" in row.values
    lead = {**changes, "loss.last": "down"} if warming else changes
    rival = (
        Candidate(
            "other",
            "The small rates are not what holds the run back: at the rate that it was given it comes no further.",
            lead | {"loss.last": "up"},
        )
        if warming
        else _another_reason(row, lead)
    )
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="hold_scheduler"),
        [
            Candidate(
                "rate_wrong",
                "The schedule is longer than the run, so that its rate is never reached."
                if warming
                else "The schedule is shorter than the run, so that for most of it there is no rate to learn with.",
                lead,
            ),
            rival,
        ],
        BEFORE_THE_STEP,
        Repair(text="Give the schedule the number of steps that the run has.", kind="learning_rate"),
    )


def _another_reason(row: Row, changes: dict[str, Expected]) -> Candidate:
    return Candidate(
        "update_lost",
        "Something other than the rate keeps the steps from moving anything: it goes on at other rates.",
        changes | {f"row[{row.id}]": "same"},
    )


def _meant_count(row: Row) -> int | None:
    """Optimizer steps for each step of the schedule under which it would have fitted the run; None where none would."""
    stepped, steps, passes = (_whole(row.values.get(name)) for name in ("scheduler_steps", "steps", "passes"))
    if not stepped or not steps:
        return None
    if "peak" in row.values:  # it was to rise, and was stepped too seldom
        peak = _whole(row.values.get("peak_after")) or 0
        return 1 if stepped < steps and peak <= steps else None
    if stepped > steps:
        return 1
    if stepped == steps and passes is not None and passes > 1:
        return max(1, steps // passes) if steps // passes > 1 else None
    return None


def _whole(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def no_rate(evidence: Evidence, row: Row) -> Proposal | None:
    """Give the steps a rate: the one that the optimizer was built with, a larger one, or a usual one."""
    if row.status == "suspected":
        return _too_small(evidence, row, ExperimentChoice(name="scale_lr", parameters={"factor": _factor(row)}))
    if row.status != "fail":
        return None
    built_with = row.values.get("built_with")
    held = isinstance(built_with, float) and 0.0 < built_with < math.inf
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "lr.first": "different", **movement(evidence, "*")}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="hold_scheduler")
        if held
        else ExperimentChoice(name="set_lr", parameters={"lr": USUAL_RATE}),
        [
            Candidate(
                "rate_wrong",
                "The optimizer was given a rate, and its schedule holds it at zero."
                if held
                else f"The learning rate itself is zero: with one of {USUAL_RATE:g} the steps move the parameters.",
                lead,
            ),
            Candidate(
                "update_lost",
                "The steps change nothing whatever the rate is.",
                lead | dict.fromkeys((key for key in lead if key.startswith(("moved", "delta"))), "same"),
            ),
        ],
        BEFORE_THE_STEP,
        Repair(
            text="Let the schedule leave zero, or begin above it." if held else "Give the optimizer a learning rate.",
            kind="learning_rate",
        ),
    )


def _factor(row: Row) -> float | None:
    """How many times the rate a copy of the run learned at."""
    factor = row.values.get("factor")
    return factor if isinstance(factor, float) and 1.0 < factor < math.inf else None


def _too_small(evidence: Evidence, row: Row, choice: ExperimentChoice) -> Proposal | None:
    """A copy of the run learned at a larger rate: whether the run itself does."""
    if (factor := _factor(row)) is None:
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "lr.first": "different", "loss.last": "down"}
    return experiment(
        evidence,
        row,
        choice,
        [
            Candidate(
                "rate_wrong",
                f"The learning rate is too small by orders of magnitude: at {factor:g} times that the run does better "
                "than a constant output.",
                lead,
            ),
            Candidate(
                "other",
                "It is not the rate: at a larger one the run does no better.",
                lead | {f"row[{row.id}]": "same", "loss.last": "same"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(text="Find out in which unit the learning rate is meant, and raise it.", kind="learning_rate"),
    )


def uphill(evidence: Evidence, row: Row) -> Proposal | None:
    """Turn the optimizer's own direction around: a sign elsewhere goes on climbing."""
    if row.status != "fail":
        return None
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES, "loss.last": "down"}
    return experiment(
        evidence,
        row,
        ExperimentChoice(name="minimize"),
        [
            Candidate(
                "wrong_term_or_sign",
                "The optimizer is told to climb a loss that is meant to fall: maximize=True, or a negative rate.",
                lead,
            ),
            Candidate(
                "other",
                "A sign is turned around between backward and step: the steps climb whatever the optimizer is told.",
                lead | {f"row[{row.id}]": "same", "loss.last": "same"},
            ),
        ],
        BEFORE_THE_STEP,
        Repair(text="Let the optimizer minimize, at a positive rate.", kind="wiring"),
    )
