"""UPDATE: did those exact objects move, as they should?"""

from __future__ import annotations

import math

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows import intended, ownership
from weaklink.collector.rows.beginning import too_large
from weaklink.collector.rows.naming import lines_with
from weaklink.collector.rows.observation import Observation, joint, names
from weaklink.collector.watching.calls import CallsRecord
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.forwards import ForwardsRecord
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.precision import PrecisionRecord
from weaklink.collector.watching.schedule import ScheduleRecord
from weaklink.collector.watching.tape import BackwardSample, StepSample

# A loss is said to have ended above its beginning when each of so many last ones is above the first.
LAST_LOSSES = 10
# Of sampled losses, first and last ones that are held against each other.
SAMPLES_COMPARED = 3


def rows(run: Observation) -> list[Row]:
    """Rows about steps, rates and movement."""
    samples = list(run.steps)
    return [
        _steps(run),
        _scaler(run),
        _rate(run),
        _moved(run, samples),
        _frozen(run, samples),
        _delta(run, samples),
        _ratio(run, samples),
        _expected(run, samples),
        _resolution(run, samples),
        _scale(run, samples),
        *_copies(run),
    ]


def _steps(run: Observation) -> Row:
    tape = run.tape
    text = f"{tape.backwards} backward calls, {tape.steps_asked} steps asked, {tape.steps} executed"
    values = {"backwards": tape.backwards, "asked": tape.steps_asked, "executed": tape.steps}
    if not tape.backwards:
        reason = "backward was never called"
        if tape.gradient_calls:
            reason = "the script takes gradients with torch.autograd.grad and may update by hand"
        return Row(id="UPDATE/steps", status="not_measured", text=text, values=dict(values), reason=reason)
    by_hand, until = _moved_by_hand(run)
    if tape.steps or tape.backwards < 2 or by_hand is not False or not run.whole:
        # Moved by hand: a loop without an optimizer. None: it could not be told.
        enough = tape.steps > 0 or by_hand
        return Row(
            id="UPDATE/steps",
            status="pass" if enough else "evidence",
            text=text + (", parameters are updated by hand" if by_hand and not tape.steps else ""),
            values=dict(values),
        )
    # Gradients may be what the script is after (saliency, their noise), or its own update is broken.
    wanted = run.reaches_other_leaves() or _reads_gradients(run)
    if not run.optimizers or wanted:
        return Row(
            id="UPDATE/steps",
            status="evidence" if wanted else "suspected",
            text=text + f"; {'no step' if run.optimizers else 'no optimizer was built'}, and no parameter moved",
            values=dict(values),
            where=[] if wanted or tape.last_backward_site is None else [tape.last_backward_site],
        )
    clears = run.record(CallsRecord).clears
    unused = len({clear.backward for clear in clears if clear.backward})
    cleared = f"; gradients were cleared {unused} times and never used" if unused else ""
    files = run.record(FilesRecord).configuration()[:1]
    return Row(
        id="UPDATE/steps",
        status="fail",
        basis="exact",
        text=text + f": no parameter moved between the first backward and {until}" + cleared,
        values={**values, "cleared": unused},
        where=[*[s for s in (tape.last_backward_site, *(o.built for o in run.optimizers[:1])) if s], *files],
    )


def _reads_gradients(run: Observation) -> bool:
    """Whether the script reads gradients in lines of its own, and never evaluates what training would have changed."""
    reads = lines_with(run.record(FilesRecord), r"\.grad\b(?!\s*(\(|=[^=]|\.zero_))", "gradient read")
    return bool(reads) and not run.record(DataRecord).evaluations


def _moved_by_hand(run: Observation) -> tuple[bool | None, str]:
    """Whether a parameter moved without a step, and until when that was looked for.

    The models may be gone at the end; then what they were at a late backward stands.
    """
    calls = run.record(CallsRecord)
    if run.moved_by_hand is not None or calls.moved_unstepped is None:
        return run.moved_by_hand, "the end"
    return calls.moved_unstepped, f"backward {calls.moved_until}"


def _scaler(run: Observation) -> Row:
    asked = run.tape.scaler_asked
    if not asked:
        return Row(
            id="UPDATE/scaler", status="not_measured", text="gradient scaler", reason="the script steps without one"
        )
    skipped = run.tape.scaler_skipped
    text = f"{asked} steps asked of the scaler, {skipped} skipped"
    # A few skips at the start find the scale; that is by design.
    return Row(
        id="UPDATE/scaler",
        status="pass" if not skipped else "evidence",
        text=text,
        values={"asked": asked, "skipped": skipped},
    )


def _rate(run: Observation) -> Row:
    rates = run.tape.rates
    if not rates:
        return Row(id="UPDATE/lr", status="not_measured", text="learning rate", reason="no optimizer step was seen")
    first, last, highest = rates[0][1], rates[-1][1], run.tape.highest_rate
    known = [rate for _, group in rates for rate in group if not math.isnan(rate)]
    held = _held_at_zero(run)
    zero = bool(known) and highest == 0.0 and run.tape.steps >= 2 and run.whole and not held
    # An optimizer of the script's own may step by another number and leave this one at zero.
    zero = zero and not any(run.moved(e) for e in run.parameters)
    text = f"{_list(first)} at the first step"
    if len(rates) > 1:
        text += f", {_list(last)} at the last, highest {highest:g}"
    if held:
        text += ", where a schedule holds it now"
    if run.tape.scheduler_steps:
        text += f", {run.tape.scheduler_steps} scheduler steps"
    if at_rest := _groups_at_zero(run):
        # A way to freeze a part, as good as any other: what was declared to be trained is judged in UPDATE/declared.
        text += f"; zero at every step in {', '.join(at_rest[:3])}"
    built = [o.built for o in run.optimizers[:1] if o.built]
    scheduled = [run.tape.scheduler_site] if run.tape.scheduler_site else []
    if not zero and (small := _far_too_small(run, text)) is not None:
        return small
    return Row(
        id="UPDATE/lr",
        status="fail" if zero else "pass" if highest > 0.0 and not at_rest else "evidence",
        basis="exact" if zero else None,
        text=text + (f": zero at every one of {run.tape.steps} steps" if zero else ""),
        values={
            "first": _list(first),
            "last": _list(last),
            "highest": highest,
            "scheduler_steps": run.tape.scheduler_steps,
            **({"built_with": _built_with(run)} if zero else {}),
        },
        where=[*scheduled, *built] if zero else [],
        step=1 if zero else None,
    )


def _groups_at_zero(run: Observation) -> list[str]:
    """Groups whose rate was zero at every step, of optimizers whose other groups had one."""
    found: list[str] = []
    for serial, rates in run.record(ScheduleRecord).optimizers.items():
        still = [number for number, group in enumerate(rates.groups) if group.highest == 0.0 == group.first]
        if len(still) < len(rates.groups):
            found += [f"group {number} of {run.optimizers[serial].class_name}" for number in still]
    return found


def _built_with(run: Observation) -> float | None:
    """The highest rate that an optimizer was given, as torch's schedulers keep it; None without one."""
    groups = [group for rates in run.record(ScheduleRecord).optimizers.values() for group in rates.groups]
    return max((group.declared for group in groups if not math.isnan(group.declared)), default=None)


def _far_too_small(run: Observation, text: str) -> Row | None:
    """The run never did better than a constant output, nor does a pinned batch at its own rate; at 100 times it does.

    The factors are tried in a copy of the run at its beginning, and the first that fits ends the search.
    """
    look = run.look("rates").values
    seen = run.record(ForwardsRecord).losses
    later = seen[len(seen) // 2 :]
    if look is None or len(seen) < 3 or not all(loss >= constant for _, loss, constant in later):
        return None
    if _comes_down([loss for _, loss, _ in seen]):
        return None  # it learns: slowly, or not for long yet
    cured = next(((float(factor), below) for factor, below in look["fits"].items() if below is not None), None)
    if cured is None or not cured[0] > 1.0 or run.tape.steps < cured[1] or run.tape.highest_rate > look["declared"]:
        return None
    built = [optimizer.built for optimizer in run.optimizers[:1] if optimizer.built]
    return Row(
        id="UPDATE/lr",
        status="suspected",
        text=f"{text}; the run never did better than a constant output, nor does one pinned batch in {look['steps']} "
        f"steps at {look['declared']:g}; at {cured[0]:g} times that it does after {cured[1]}",
        values={"declared": look["declared"], "factor": cured[0], "highest": run.tape.highest_rate},
        where=[*built, *run.record(FilesRecord).configuration()[:1]],
    )


def _comes_down(losses: list[float]) -> bool:
    """Whether each of the last sampled losses is below each of the first ones."""
    first, last = losses[:SAMPLES_COMPARED], losses[-SAMPLES_COMPARED:]
    return len(losses) >= 2 * SAMPLES_COMPARED and max(last) < min(first)


def _held_at_zero(run: Observation) -> bool:
    """Whether a schedule holds a system's rate at zero: the loop is ours, and steps no schedule that would raise it."""
    return run.given and any(o.held_at_zero for o in run.optimizers)


def _list(rates: list[float]) -> str:
    shown = [f"{rate:g}" for rate in dict.fromkeys(rates)]
    return "/".join(shown[:4])


def _moved(run: Observation, samples: list[StepSample]) -> Row:
    learning = run.learning()
    if not samples or not learning:
        reason = run.no_step() if not samples else "no trainable parameter was reached by a loss"
        return Row(id="UPDATE/moved", status="not_measured", text="parameters that moved", reason=reason)
    known = [e for e in learning if run.moved(e) is not None]
    moved = [e for e in known if run.moved(e)]
    still = [e for e in known if not run.moved(e)]
    text = f"{len(moved)}/{len(learning)} moved in {len(samples)} sampled steps"
    if still:
        text += f"; exactly still: {names(still)}"
    # None with a closure, whose gradients do not exist before the step.
    empty = [s for s in samples if s.gradient_norm == 0.0 or (s.gradient_norm is None and s.consumed)]
    if still and len(empty) == len(samples):
        text += "; at no sampled step was there a gradient to take"
    others_move = bool(moved) or run.trains_other_leaves() or run.trains_by_hand()
    wrong = _still_without_excuse(run, still, others_move)
    return Row(
        id="UPDATE/moved",
        status="fail" if wrong else "evidence" if still else "pass",
        basis="exact" if wrong else None,
        text=text,
        values={
            "moved": len(moved),
            "expected": len(learning),
            "still": [e.name or "" for e in still[:20]],
            "without_gradient": len(empty),
        },
        where=_step_sites(samples) if wrong else [],
        step=samples[0].step if wrong else None,
    )


def _still_without_excuse(run: Observation, still: list[ParameterEntry], others_move: bool) -> list[ParameterEntry]:
    """Exactly still although every sampled gradient was nonzero.

    While other parameters move, an owned one may be still because lr * gradient is below its last place (a bias before
    a normalisation layer), and one left out of the optimizer may be meant to be: only one that is missing from it by
    accident has no such excuse.
    """
    # A warmup that starts at a rate of zero may have been cut short, or have held the sampled steps there.
    at_zero = all(rate == 0.0 for sample in run.steps for rate in sample.lr)
    cut_short = not run.whole or _held_at_zero(run)
    warming_up = (run.tape.highest_rate == 0.0 and cut_short) or (run.tape.highest_rate > 0.0 and at_zero)
    if sum(1 for _ in run.steps) < 2 or warming_up:
        return []
    with_gradient = [e for e in still if e.states and all(state == "nonzero" for state in e.states)]
    missing = {entry.serial for entry in ownership.missing_by_accident(run)}
    return [e for e in with_gradient if not others_move or e.serial in missing]


def _step_sites(samples: list[StepSample]) -> list[Site]:
    return [samples[0].site] if samples[0].site else []


def _frozen(run: Observation, samples: list[StepSample]) -> Row:
    live = {serial for window in run.tape.windows for serial in window.live}
    declared = {e.serial for e in intended.frozen(run)}
    frozen = [e for e in run.parameters if e.serial in live and (not e.requires_grad or e.serial in declared)]
    if not frozen or not samples:
        reason = "the model has no frozen parameters" if not frozen else run.no_step()
        return Row(id="UPDATE/frozen", status="not_measured", text="frozen parameters", reason=reason)
    moved = [e for e in frozen if run.moved(e)]
    unseen = [e for e in frozen if run.moved(e) is None]
    text = f"{len(frozen) - len(moved) - len(unseen)}/{len(frozen)} frozen parameters exactly still"
    if moved:
        text += f"; moved: {names(moved)}"
    if unseen:
        text += f"; {len(unseen)} too large to copy, not measured"
    if stepped := _stepped_although_declared(run, samples):
        text += f"; declared to rest and moved by an optimizer: {names(stepped)}"
    return Row(
        id="UPDATE/frozen",
        # A running average of another model moves frozen parameters by intent.
        status="fail" if stepped else "evidence" if moved or unseen else "pass",
        basis="declared" if stepped else None,
        text=text,
        where=_holders(run, stepped, samples),
        values={"still": len(frozen) - len(moved) - len(unseen), "frozen": len(frozen)},
    )


def _stepped_although_declared(run: Observation, samples: list[StepSample]) -> list[ParameterEntry]:
    """Declared to rest, and moved in a step of an optimizer that holds them: by a gradient, decay or momentum.

    What moves outside of such a step follows something else by design: a running average, a copy.
    """
    moved = {serial for s in samples for serial in s.consumed if s.moved.get(serial)}
    return [entry for entry in intended.frozen(run) if entry.serial in moved]


def _holders(run: Observation, stepped: list[ParameterEntry], samples: list[StepSample]) -> list[Site]:
    built = [run.optimizers[serial].built for entry in stepped[:3] for serial in entry.owners]
    sites = [*built, *(_step_sites(samples) if stepped else [])]
    return list({site.place: site for site in sites if site is not None}.values())[:3]


def _delta(run: Observation, samples: list[StepSample]) -> Row:
    first = next((s for s in samples if s.delta), None)
    if first is None:
        return Row(
            id="UPDATE/delta",
            status="not_measured",
            text="size of one step's movement",
            reason=run.no_step(),
        )
    deltas = [value for serial, value in first.delta.items() if first.moved.get(serial)]
    text = (
        f"{min(deltas):.3e} .. {max(deltas):.3e} over {len(deltas)} moved parameters at step {first.step}"
        if deltas
        else f"nothing moved at step {first.step}"
    )
    return Row(
        id="UPDATE/delta",
        status="evidence",
        text=text,
        values={"smallest": min(deltas, default=0.0), "largest": max(deltas, default=0.0), "count": len(deltas)},
        step=first.step,
    )


def _ratio(run: Observation, samples: list[StepSample]) -> Row:
    learning = [e.serial for e in run.learning()]
    rows_ = [(s, joint(s.delta, learning), joint(s.before, learning)) for s in samples]
    usable = [(s, delta, before) for s, delta, before in rows_ if before > 0.0]
    if not usable:
        return Row(
            id="UPDATE/ratio",
            status="not_measured",
            text="movement against parameter norm",
            reason="no optimizer step was measured with a learning parameter",
        )
    first, last = usable[0], usable[-1]
    text = f"delta / parameter norm {first[1] / first[2]:.3e} at step {first[0].step}"
    if last is not first:
        text += f", {last[1] / last[2]:.3e} at step {last[0].step}"
    return Row(
        id="UPDATE/ratio",
        status="evidence",
        text=text,
        values={"first": first[1] / first[2], "last": last[1] / last[2]},
    )


def _expected(run: Observation, samples: list[StepSample]) -> Row:
    """Length of the movement against rate times gradient, parameter by parameter: 1 for plain SGD, by its equation."""
    text = "movement against rate times gradient"
    first = next((s for s in samples if s.delta), None)
    rates = [] if first is None else first.lr
    if first is None or len(set(rates)) != 1 or not rates[0] > 0.0:
        reason = run.no_step() if first is None else "the groups have different rates, or none above zero"
        return Row(id="UPDATE/expected", status="not_measured", text=text, reason=reason)
    backward = _last_backward(run, first)
    consumed = set(first.consumed)
    ratios = [
        first.delta[serial] / (rates[0] * norm)
        for serial, (_, norm) in (backward.gradients.items() if backward is not None else [])
        if norm and math.isfinite(norm) and serial in first.delta and serial in consumed
    ]
    if not ratios:
        return Row(id="UPDATE/expected", status="not_measured", text=text, reason="no owned parameter had a gradient")
    low, high = min(ratios), max(ratios)
    shown = f"{low:.3f} .. {high:.3f}" if len(ratios) > 1 else f"{low:.3f}"
    return Row(
        id="UPDATE/expected",
        status="evidence",
        text=f"delta / (lr * gradient) {shown} over {len(ratios)} parameters at step {first.step}",
        values={"lowest": low, "highest": high, "count": len(ratios)},
        step=first.step,
    )


def _last_backward(run: Observation, sample: StepSample) -> BackwardSample | None:
    window = next(w for w in run.tape.windows if w.step == sample.step)
    return window.backwards[-1] if window.backwards else None


def _resolution(run: Observation, samples: list[StepSample]) -> Row:
    """Entries that had a gradient and did not move in the last bit: the step is below the resolution of their type.

    Of a large parameter only the first entries are looked at: see `COUNTED_ENTRIES` in `watching/movement.py`.
    """
    text = "entries whose movement was lost to rounding"
    measured = [s for s in samples if s.still_entries is not None]
    counted = measured[0].still_entries if measured else None
    if counted is None or not counted[1]:
        reason = run.no_step() if not samples else "no owned entry had a gradient"
        return Row(id="UPDATE/resolution", status="not_measured", text=text, reason=reason)
    still, total = counted
    if (lost := _lost_to_rounding(run)) is not None:
        return lost
    # Of 16-bit parameters the question is asked, and answered where most of what has a gradient moves.
    narrow = bool(run.record(PrecisionRecord).casts) or any(
        run.by_serial(serial).dtype in ("bfloat16", "float16") for serial in measured[0].consumed
    )
    return Row(
        id="UPDATE/resolution",
        status="pass" if narrow and 2 * still < total else "evidence",
        text=f"{still} of {total} owned entries with a gradient did not move in any bit at step {measured[0].step}",
        values={"still": still, "entries": total},
        step=measured[0].step,
    )


def _lost_to_rounding(run: Observation) -> Row | None:
    """Most entries of 16-bit parameters stay although the same steps in float32 move them, at each moment looked at."""
    seen = run.record(PrecisionRecord)
    looks = [(step, run.look(name).values or {}) for step, name in seen.looks]
    known = [(step, values) for step, values in looks if values.get("entries")]
    if len(known) < 2 or not all(2 * v["lost"] > v["entries"] and 2 * v["arrived"] < 1 for _, v in known):
        return None
    if any(values["kept"] for _, values in known):
        return None
    step, values = known[0]
    built = [optimizer.built for optimizer in run.optimizers[:1] if optimizer.built]
    return Row(
        id="UPDATE/resolution",
        status="fail",
        basis="exact",
        text=f"{values['lost']} of {values['entries']} entries with a gradient do not move in any bit in steps from "
        f"step {step} on, and do in the same steps in float32: the parameters' type rounds the update away",
        values={"still": values["lost"], "entries": values["entries"], "arrived": values["arrived"]},
        where=[*seen.casts[:1], *built[:1], *run.record(FilesRecord).configuration()[:1]][:3],
        step=step,
    )


def _copies(run: Observation) -> list[Row]:
    """Only where the step was one of ours, on a live system: what was kept to put everything back."""
    if run.examined.copies is None:
        return []
    return [Row(id="UPDATE/copies", status="evidence", text=run.examined.copies)]


def _controlled_scale(run: Observation) -> Row | None:
    """The run's first steps taken again: at its own rate nothing is learned, at a share of it the same batches are."""
    onset, found = run.tape.first_nonfinite_step, too_large(run)
    # What is not finite without a step that outgrew its parameters has another reason.
    if found is None or (onset is not None and not run.outgrown_steps()):
        return None
    built = [optimizer.built for optimizer in run.optimizers[:1] if optimizer.built]
    return Row(
        id="UPDATE/scale",
        status="fail",
        basis="controlled",
        text=found.text,
        values={"nonfinite_from_step": onset, "outgrown_steps": len(run.outgrown_steps()), "factor": found.factor},
        where=[*built, *run.record(FilesRecord).configuration()[:1]],
        step=1,
    )


def _finite_scale(run: Observation, samples: list[StepSample], learning: list[int]) -> Row:
    """The loss stayed finite. Where it also ended above its beginning, steps that outgrow their parameters are suspect.

    Above means every one of the last losses: one that jumps and comes back has found its way.
    """
    larger = [s for s in samples if joint(s.delta, learning) > joint(s.before, learning) > 0.0]
    losses = run.tape.losses.value
    last = losses[1:][-LAST_LOSSES:]
    worse = bool(last) and min(last) > losses[0]
    suspicious = worse and len(larger) > 1
    text = "the loss stayed finite" + (" and ended above where it began" if worse and larger else "")
    if larger:
        first = larger[0]
        text += f"; {len(larger)} sampled steps moved the parameters by more than their norm"
        text += f" (step {first.step}: {joint(first.delta, learning):.4e}, {joint(first.before, learning):.4e})"
    return Row(
        id="UPDATE/scale",
        status="suspected" if suspicious else "evidence" if larger else "pass",
        text=text,
        values={
            "nonfinite_from_step": None,
            "outgrown_steps": len(larger),
            "ratio": joint(larger[0].delta, learning) / joint(larger[0].before, learning) if larger else None,
        },
        where=[o.built for o in run.optimizers[:1] if o.built] if suspicious else [],
        step=larger[0].step if suspicious else None,
    )


def _scale(run: Observation, samples: list[StepSample]) -> Row:
    """A step longer than the parameters it moves, in a run that turned non-finite afterwards.

    The first such step is looked for in the columns of gradient, parameter and delta norms: where the delta exceeds the
    parameters, what is added is larger than what it is added to.
    """
    onset = run.tape.first_nonfinite_step
    learning = [e.serial for e in run.learning()]
    if not samples or not learning:
        return Row(
            id="UPDATE/scale",
            status="not_measured",
            text="steps that outgrow their parameters before a non-finite loss",
            reason=run.no_step() if not samples else "no trainable parameter was reached by a loss",
        )
    if (proven := _controlled_scale(run)) is not None:
        return proven
    if onset is None:
        return _finite_scale(run, samples, learning)
    outgrown = run.outgrown_steps()
    text = f"the loss is non-finite from step {onset} on"
    if not run.stays_nonfinite():
        text = f"the loss was non-finite at step {onset}, and is finite at the end"
    if outgrown:
        first = outgrown[0]
        text += (
            f"; step {first.step} moved the parameters by {joint(first.delta, learning):.4e},"
            f" their norm was {joint(first.before, learning):.4e}"
        )
    return Row(
        id="UPDATE/scale",
        status="suspected" if outgrown else "evidence",
        text=text,
        values={
            "nonfinite_from_step": onset,
            "outgrown_steps": len(outgrown),
            "ratio": joint(outgrown[0].delta, learning) / joint(outgrown[0].before, learning) if outgrown else None,
        },
        where=[o.built for o in run.optimizers[:1] if o.built] if outgrown else [],
        step=outgrown[0].step if outgrown else None,
    )
