"""GRADIENT/cleared: is every gradient that backward gave consumed by a step before somebody clears it?"""

from __future__ import annotations

import math
from itertools import pairwise

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.calls import AtStep, CallsRecord
from weaklink.collector.watching.tape import BackwardSample, Window

ID = "GRADIENT/cleared"
TEXT = "gradients cleared before a step consumed them"
# Windows that must agree before "always" is said.
WINDOWS_FOR_ALWAYS = 2
# Norms are sums in floating point: a gradient scaled as a whole has the same ratio in each parameter up to this.
RATIO_TOLERANCE = 1e-3


def rows(run: Observation) -> list[Row]:
    """One row: of several backward calls before a step, what reached it."""
    calls = run.record(CallsRecord)
    windows = [window for window in run.tape.windows if window.steps and window.backwards]
    if not windows or not calls.backwards:
        reason = run.no_step() if not windows else "the order of calls was not watched"
        return [Row(id=ID, status="not_measured", text=TEXT, reason=reason)]
    several = [window for window in windows if len(_loop_backwards(calls, window)) > 1]
    losing = [window for window in several if _only_the_last_survives(run, calls, window)]
    if len(several) < WINDOWS_FOR_ALWAYS or len(losing) < len(windows):
        lost = sum(_lost_between(calls, window) for window in several)
        sampled = sum(len(_loop_backwards(calls, window)) for window in windows)
        text = f"{lost} of {sampled} sampled backward calls were cleared unused"
        return [Row(id=ID, status="evidence" if lost else "pass", text=text, values={"cleared": lost})]
    count = len(_loop_backwards(calls, losing[0]))
    return [
        Row(
            id=ID,
            status="fail",
            basis="exact",
            text=f"in {len(losing)} of {len(windows)} sampled steps the gradients of all backward calls but the last "
            f"were cleared before the step took them ({count - 1} of {count} at step {losing[0].step})",
            values={"windows": len(losing), "backwards": count},
            where=_sites(calls, losing[0]),
            step=losing[0].step,
        )
    ]


def _loop_backwards(calls: CallsRecord, window: Window) -> list[BackwardSample]:
    """The window's backward calls that no closure made, and of which it is known how they came about."""
    return [b for b in window.backwards if b.index in calls.backwards and not calls.backwards[b.index].in_step]


def _nonzero_owned(window: Window, backward: BackwardSample) -> set[int]:
    consumed = {serial for step in window.steps for serial in step.consumed}
    return {serial for serial, (state, _) in backward.gradients.items() if state == "nonzero" and serial in consumed}


def _lost_between(calls: CallsRecord, window: Window) -> int:
    backwards = _loop_backwards(calls, window)
    lost = (bool(_nonzero_owned(window, now)) and not _survivors(window, now, on) for now, on in pairwise(backwards))
    return sum(lost)


def _survivors(window: Window, now: BackwardSample, later: BackwardSample) -> set[int]:
    return _nonzero_owned(window, now) & set(later.left_over)


def _only_the_last_survives(run: Observation, calls: CallsRecord, window: Window) -> bool:
    """Whether all but the last backward's gradients were cleared, and the step took the last one's.

    Several things that look like it are meant. The calls must come the same way through the script (another line is
    another objective), nobody may move the parameters in between (an ascent step), no step may have been asked for (a
    scaler that skips), and what the step takes must be the last gradient itself: a script that copies each gradient
    away and hands over a mixture of them has lost nothing. Nor may the earlier calls have been made for something else:
    an attack takes an input's gradient, again and again, before the step takes the parameters'.
    """
    backwards = _loop_backwards(calls, window)
    places = [calls.backwards[backward.index] for backward in backwards]
    same = all(len({getattr(place, name) for place in places}) == 1 for name in ("path", "asked", "parameters"))
    return (
        len(backwards) > 1
        and same
        and not any(_for_an_input(run, backward) for backward in backwards[:-1])
        and _lost_between(calls, window) == len(backwards) - 1
        and _takes_the_last(calls, window, backwards[-1])
    )


def _for_an_input(run: Observation, backward: BackwardSample) -> bool:
    leaves = backward.graph.leaves if backward.graph is not None else []
    return any(not run.by_serial(leaf).is_parameter and not run.by_serial(leaf).owners for leaf in leaves)


def _takes_the_last(calls: CallsRecord, window: Window, last: BackwardSample) -> bool:
    taken = next((item for item in calls.at_step if item.step == window.step), None)
    if taken is None:
        return False
    ratios = _ratios(taken, last)
    if not ratios:
        return False
    whole = all(ratio == 1.0 for ratio in ratios)
    low, high = min(ratios), max(ratios)
    scaled_as_a_whole = high - low <= RATIO_TOLERANCE * high
    clips = [clip for clip in calls.clips if clip.step == window.step and clip.backward == last.index]
    return whole or any(clip.by_value for clip in clips) or (scaled_as_a_whole and (bool(clips) or len(ratios) > 1))


def _ratios(taken: AtStep, last: BackwardSample) -> list[float]:
    """Norm at the step against norm after the last backward, for each parameter that had one."""
    pairs = [(taken.norms.get(serial, 0.0), norm) for serial, (_, norm) in last.gradients.items() if norm]
    return [at_step / after for at_step, after in pairs if at_step and math.isfinite(after)]


def _sites(calls: CallsRecord, window: Window) -> list[Site]:
    backwards = _loop_backwards(calls, window)
    first, last = backwards[0], backwards[-1]
    between = [c.site for c in calls.clears if c.site and first.index <= c.backward < last.index]
    by_place = {(site.file, site.line): site for site in (*between[:1], first.site) if site}
    return list(by_place.values())
