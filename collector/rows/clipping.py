"""UPDATE/clipping: were the right gradients clipped, at a moment when it still mattered?"""

from __future__ import annotations

import math
from collections import Counter

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.calls import AtStep, CallsRecord, Clip, LateClip, ScaledClip

ID = "UPDATE/clipping"
# Sampled steps that must agree before "always" is said.
STEPS_FOR_ALWAYS = 2


def rows(run: Observation) -> list[Row]:
    """One row about clipping, by torch's functions or by hand; none where nothing was clipped or zeroed."""
    calls = run.record(CallsRecord)
    found = _scaled(run, calls) or _late(calls) or _early(run, calls) or _zero_limit(run, calls)
    if found is not None:
        return [found]
    if not calls.clips:
        return []
    return [Row(id=ID, status="pass" if _timely(calls) else "evidence", text=_text(calls), values=_values(calls))]


def _timely(calls: CallsRecord) -> list[Clip]:
    late = {id(item.clip) for item in calls.late_clips}
    scaled = {id(item.clip) for item in calls.scaled_clips}
    return [clip for clip in calls.clips if id(clip) not in late | scaled]


def _text(calls: CallsRecord) -> str:
    acted = sum(clip.acted for clip in calls.clips)
    return f"{len(calls.clips)} sampled calls, {acted} of them beyond the limit"


def _values(calls: CallsRecord) -> dict[str, int | float | str | bool | list[str] | list[int] | None]:
    return {"sampled": len(calls.clips), "acted": sum(clip.acted for clip in calls.clips)}


def _scaled(run: Observation, calls: CallsRecord) -> Row | None:
    """Gradients clipped while they were multiplied by the scaler's scale: the step divides them by it afterwards.

    A limit that is multiplied by the scale as well is right. It can only be where the script has read the scale; one
    that stays while the scale changes is none.
    """
    finite = [item for item in calls.scaled_clips if math.isfinite(item.clip.limit)]
    if len(finite) < STEPS_FOR_ALWAYS or not any(item.clip.acted for item in finite):
        return None
    limits, scales = {item.clip.limit for item in finite}, {item.scale for item in finite}
    follows = calls.scales_read > 0 and not (len(limits) == 1 and len(scales) > 1)
    first = next(item for item in finite if item.clip.acted)
    return Row(
        id=ID,
        status="evidence" if follows else "fail",
        basis=None if follows else "exact",
        text=f"{len(finite)} of {len(calls.clips)} sampled calls clipped gradients that were still multiplied by the "
        f"scaler's {first.scale:g}{_against(first)}",
        values={**_values(calls), "scale": first.scale, "limit": first.clip.limit},
        where=[] if follows else _sites([item.clip for item in finite]),
        step=None if follows else first.clip.step,
    )


def _against(item: ScaledClip) -> str:
    clip = item.clip
    if clip.norm is None or not math.isfinite(clip.norm):
        return f": a limit of {clip.limit:g} is one of {clip.limit / item.scale:.3g} for the gradients themselves"
    return f": norm {clip.norm:.4g} against a limit of {clip.limit:g}, unscaled {clip.norm / item.scale:.4g}"


def _late(calls: CallsRecord) -> Row | None:
    """Clipped after the step that used the gradients, and cleared before the next backward: of no effect at all."""
    finite = [item for item in calls.late_clips if math.isfinite(item.clip.limit)]
    wasted = [item for item in finite if item.wasted and item.clip.serials]
    if len(wasted) < STEPS_FOR_ALWAYS or len(wasted) < len(finite):
        return None
    late = {serial for item in wasted for serial in item.clip.serials}
    # Clipped in time as well: then the late call is for its norm, or left over.
    if any(clip.serials & late for clip in _timely(calls)) or not any(item.clip.acted for item in wasted):
        return None
    return _wasted(calls, wasted)


def _wasted(calls: CallsRecord, wasted: list[LateClip]) -> Row:
    first = next(item.clip for item in wasted if item.clip.acted)
    beyond = "" if first.norm is None else f"; at step {first.step} the norm was {first.norm:.4g}"
    return Row(
        id=ID,
        status="fail",
        basis="exact",
        text=f"in {len(wasted)} of {len(wasted)} sampled steps clipped to {first.limit:g} after the step, and cleared "
        f"before the next one{beyond}: no step ever took a clipped gradient",
        values={**_values(calls), "wasted": len(wasted), "norm": first.norm, "limit": first.limit},
        where=_sites([item.clip for item in wasted]),
        step=wasted[0].clip.step - 1,
    )


def _early(run: Observation, calls: CallsRecord) -> Row | None:
    """Clipped where no gradient was, at every sampled call, while a step took one beyond the limit: before backward."""
    empty = [clip for clip in calls.clips if not clip.by_value and math.isfinite(clip.limit) and clip.norm == 0.0]
    if len(empty) < STEPS_FOR_ALWAYS or len(empty) < len(calls.clips):
        return None
    limit = max(clip.limit for clip in empty)
    norms = [(sample.step, sample.gradient_norm) for sample in run.steps if sample.gradient_norm is not None]
    beyond = next(((step, norm) for step, norm in norms if limit < norm < math.inf), None)
    if beyond is None:
        return None
    return Row(
        id=ID,
        status="fail",
        basis="exact",
        text=f"all {len(empty)} sampled calls clipped to {limit:g} where there was no gradient; at step {beyond[0]} "
        f"the norm was {beyond[1]:.4g}: no step ever took a clipped gradient",
        values={**_values(calls), "wasted": len(empty), "norm": beyond[1], "limit": limit},
        where=_sites(empty),
        step=beyond[0],
    )


def _zero_limit(run: Observation, calls: CallsRecord) -> Row | None:
    """Parameters that are exactly zero, and whose gradients are exactly zero at each step, but not after backward.

    A limit in proportion to the parameter's own norm does that, and nothing else that leaves all other gradients alone:
    what is frozen by clearing its gradient need not be zero.
    """
    taken = [item for item in calls.at_step if item.zeroed]
    if len(taken) < STEPS_FOR_ALWAYS:
        return None
    always = frozenset.intersection(*(item.zeroed for item in taken))
    norms = [(sample.step, sample.before) for sample in run.steps]
    zero = {s for s in always if _always_zero(s, norms)}
    entries = [run.by_serial(serial) for serial in sorted(zero)]
    others = _kept(calls, taken) - always
    if not entries or zero != always or not others or not _all_zero_ones(run, zero, others, norms):
        return None
    return Row(
        id=ID,
        status="fail",
        basis="exact",
        text=f"{len(entries)} parameters are exactly zero and have a gradient after backward, and none at the step: "
        f"something scales it by their own norm before; they never move: {names(entries)}",
        values={"zeroed": [e.name or "" for e in entries[:20]], "steps": len(taken)},
        where=calls.edits[:2] or _backward_and_step(run),
        step=taken[0].step,
    )


def _kept(calls: CallsRecord, taken: list[AtStep]) -> set[int]:
    steps = {item.step for item in taken}
    return {serial for item in calls.at_step if item.step in steps for serial in item.norms}


def _always_zero(serial: int, norms: list[tuple[int, dict[int, float]]]) -> bool:
    seen = [before[serial] for _, before in norms if serial in before]
    return len(seen) >= STEPS_FOR_ALWAYS and all(norm == 0.0 for norm in seen)


def _all_zero_ones(
    run: Observation, zero: set[int], others: set[int], norms: list[tuple[int, dict[int, float]]]
) -> bool:
    """Whether none of the parameters that kept their gradient was zero itself: it is the zero that decides."""
    first = {serial: before[serial] for _, before in reversed(norms) for serial in before}
    return all(first.get(serial, 1.0) != 0.0 for serial in others - zero)


def _sites(clips: list[Clip]) -> list[Site]:
    """The places of these calls, the most frequent first."""
    counted = Counter((clip.site.file, clip.site.line) for clip in clips if clip.site)
    by_place = {(clip.site.file, clip.site.line): clip.site for clip in clips if clip.site}
    return [by_place[place] for place, _ in counted.most_common(2)]


def _backward_and_step(run: Observation) -> list[Site]:
    return [site for site in (run.tape.last_step_site, run.tape.last_backward_site) if site]
