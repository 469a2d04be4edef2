"""Instruments that a model asks for before it proposes: each one a disposable rerun that stops at its step."""

from __future__ import annotations

from weaklink.agent.close_up import nonfinite_from
from weaklink.agent.conversation.looks import Looked
from weaklink.agent.runner import Runner
from weaklink.collector.asked import INSTRUMENTS
from weaklink.collector.errors import WeaklinkError
from weaklink.collector.evidence import Evidence
from weaklink.collector.table.text import printable

# A step that is chosen without being asked for is reached in about so many seconds.
SECONDS = 30.0
# Steps before the first that shows a non-finite loss: its gradient may have broken before.
_BEFORE = 2
# The instruments that take the first step again: later ones begin from what has already gone wrong.
_FIRST = ("learning_rates", "tiny_batch")


def run_instrument(runner: Runner | None, observed: Evidence, name: str, step: int | None = None) -> Looked:
    """Run one instrument on the subject again, or say why not; never raises for what a model can ask.

    Args:
        runner: Runs the subject; None where it cannot be run from here (an evidence file, a live object).
        observed: The evidence of the observed run.
        name: Key of `INSTRUMENTS`.
        step: The optimizer step, from 1; None lets the instrument choose.
    """
    if name not in INSTRUMENTS:
        return _looked(name, step, False, f"there is no such instrument; known are {', '.join(INSTRUMENTS)}")
    if runner is None or observed.subject.kind not in ("script", "module", "factory"):
        return _looked(name, step, False, "the subject cannot be run from here: run it where the script is")
    steps = observed.outcome.steps
    if step is not None and not 1 <= step <= max(steps, 1):
        last = f"the observed run took {steps} step{'s' * (steps != 1)}"
        return _looked(name, step, False, f"step {step} is not there: steps count from 1, and {last}")
    at = step if step is not None else default_step(observed, name)
    try:
        result, why = runner.instrument(observed, name, at)
    except WeaklinkError as error:
        return _looked(name, step, False, error.message)
    if result is None:
        return _looked(name, step, False, why)
    chosen = "" if step is not None else ", chosen by the instrument"
    asked = f"{name} at step {result.step} of a rerun{chosen}: {INSTRUMENTS[name].question}"
    return _looked(name, step, result.reason is None, f"{asked}\n{result.text}")


def default_step(observed: Evidence, name: str) -> int:
    """The step that an instrument looks at when none is asked for."""
    onset = nonfinite_from(observed)
    if name in _FIRST:
        return 1
    if name == "nonfinite_trace":
        return max(1, onset - _BEFORE) if onset is not None else 1
    if name == "slices":
        last = onset - 1 if onset is not None else _last_with_backward(observed)
        return max(1, min(last, _affordable(observed)))
    first = observed.first_divergence
    wanted = onset - 1 if onset is not None else first.step if first is not None and first.step is not None else 1
    return max(1, min(wanted, max(observed.outcome.steps, 1)))


def _last_with_backward(observed: Evidence) -> int:
    """The first step of the last iteration: where several optimizers step after one backward, the others have none."""
    outcome = observed.outcome
    return outcome.steps - (-(-outcome.steps // max(1, outcome.backwards)) - 1)


def _affordable(observed: Evidence) -> int:
    steps, seconds = observed.outcome.steps, observed.outcome.seconds
    return steps if seconds <= SECONDS else int(steps * SECONDS / seconds)


def _looked(name: str, step: int | None, ok: bool, text: str) -> Looked:
    safe = "\n".join(printable(line, 1000) for line in text.splitlines())
    return Looked(do="instrument", request={"name": name, "step": step}, ok=ok, text=safe)
