"""When a close-up is taken, where in the run it begins, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from weaklink.collector.errors import WeaklinkError
from weaklink.collector.evidence import Evidence
from weaklink.collector.job import CLOSE_UP_STEPS
from weaklink.collector.merging import merged, needs_looks_in_place

if TYPE_CHECKING:
    from weaklink.agent.runner import Runner, RunRecord

# A close-up is to take seconds: a stage that lies further into the run than this is not looked at.
SECONDS = 30.0
# Steps before a loss that is not finite: the gradient that broke it, and one more.
_BEFORE = 2


def closer(
    runner: Runner,
    observed: Evidence,
    started: Callable[[int], None] = lambda horizon: None,
    finished: Callable[[RunRecord], None] = lambda record: None,
) -> tuple[Evidence, bool]:
    """The observed evidence with what a close-up adds, and whether the user interrupted it.

    A close-up that fails adds nothing: the chain of the observed run stands without it.

    Args:
        runner: Runs the subject again.
        observed: The evidence of the observed run.
        started: Told the horizon, in optimizer steps, before each rerun.
        finished: Told how each ended.
    """
    close: Evidence | None = None
    looked: Evidence | None = None
    try:
        if starts := beginnings(observed):
            started(starts[-1] + CLOSE_UP_STEPS - 1)
            record = runner.close_up(observed, starts)
            finished(record)
            close = record.evidence
            if record.result.interrupted:
                return merged(observed, close), True
        if needs_looks_in_place(observed) and _seconds(observed) <= SECONDS:
            started(max(observed.outcome.steps, 1))
            record = runner.look(observed)
            finished(record)
            looked = record.evidence
            if record.result.interrupted:
                return merged(observed, close, looked), True
    except WeaklinkError as error:
        observed = observed.model_copy(deep=True)
        observed.problems.append(f"close-up: {error.message}")
    return merged(observed, close, looked), False


def beginnings(observed: Evidence) -> list[int]:
    """Steps, ascending, at which a close-up begins; none where it could add nothing.

    The first step, each stage of the run, and right before the loss or a gradient turned non-finite.
    """
    outcome = observed.outcome
    if not outcome.backwards or observed.subject.kind not in ("script", "module") or _settled(observed):
        return []
    wanted = {1, *observed.stages}
    if (onset := nonfinite_from(observed)) is not None:
        wanted.add(max(1, onset - _BEFORE))
    a_step = outcome.seconds / max(outcome.steps, 1)
    return sorted(start for start in wanted if start == 1 or (start + CLOSE_UP_STEPS) * a_step <= SECONDS)


def _settled(observed: Evidence) -> bool:
    """Whether a boundary before all that a close-up looks at has failed, beyond doubt."""
    first = observed.first_divergence
    return first is not None and first.boundary == "TASK" and first.status == "fail" and first.basis == "exact"


def nonfinite_from(observed: Evidence) -> int | None:
    """The earliest step that a row or a recorded loss names."""
    found = [row.values.get("nonfinite_from_step") for row in observed.rows]
    steps = [step for step in found if isinstance(step, int)]
    broken = observed.row("GRADIENT/finite")
    if broken is not None and broken.values.get("nonfinite") and broken.step is not None:
        steps.append(broken.step)
    per_step = max(1, observed.outcome.backwards) / max(1, observed.outcome.steps)
    losses = zip(observed.losses.index, observed.losses.value, strict=True)
    index = next((index for index, value in losses if not math.isfinite(value)), None)
    if index is not None:
        steps.append(max(1, math.ceil(index / per_step)))
    return min(steps, default=None)


def _seconds(observed: Evidence) -> float:
    return observed.outcome.seconds
