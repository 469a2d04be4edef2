"""GRADIENT: did the parameters receive real derivatives?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.rows.vanishing import nonzero
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.tape import BackwardSample, StepSample, Window

# Pairs of steps that must agree before "always" is said of a gradient.
CONSUMPTIONS_FOR_ALWAYS = 2
# A gradient scaler starts at 2**16 and halves at each overflow: after so many it multiplies by no more than one.
SKIPS_BY_DESIGN = 16


def rows(run: Observation) -> list[Row]:
    """Rows about gradients as they stood right after backward."""
    learning = run.learning()
    if not learning or not any(b.gradients for b in run.backwards):
        reason = "backward was never called" if run.tape.backwards == 0 else "no gradient of a model parameter was seen"
        if run.tape.gradient_calls and not run.tape.backwards:
            reason = "the script takes gradients with torch.autograd.grad, which leaves none on the parameters"
        return [
            Row(id=f"GRADIENT/{label}", status="not_measured", text=text, reason=reason)
            for label, text in (
                ("pre_existing", "gradients left from before"),
                ("present", "gradients received"),
                ("finite", "finite gradients"),
                ("nonzero", "gradients other than exactly zero"),
                ("norm", "total gradient norm"),
            )
        ]
    return [
        _pre_existing(run),
        _present(learning),
        _finite(run, learning),
        nonzero(run, learning),
        _norm(run, learning),
    ]


def _pre_existing(run: Observation) -> Row:
    """Gradients that an optimizer consumed and nobody cleared before it consumes them again."""
    pairs = list(_consumptions(run))
    kept = [(site, step) for site, step, was_kept in pairs if was_kept]
    first = next(run.backwards, None)
    before = len(first.left_over) if first else 0
    never_consumed = len([e for e in run.unowned() if any(e.serial in b.left_over for b in run.backwards)])
    if len(pairs) >= CONSUMPTIONS_FOR_ALWAYS and len(kept) == len(pairs):
        sites = [kept[0][0], run.tape.last_step_site]
        return Row(
            id="GRADIENT/pre_existing",
            status="fail",
            basis="exact",
            text=f"before {len(pairs)} of {len(pairs)} sampled steps backward added to gradients already consumed",
            values={"pre_existing": before, "never_cleared": len(pairs)},
            where=[site for site in sites if site],
            step=kept[0][1],
        )
    text = f"{before} before the first backward"
    if run.examined.set_aside:
        text = f"{run.examined.set_aside} were there before, set aside for this step"
    if never_consumed:
        text += f"; {never_consumed} pile up that no optimizer consumes"
    return Row(
        id="GRADIENT/pre_existing",
        status="evidence" if never_consumed or run.examined.set_aside else "pass",
        text=text,
        values={"pre_existing": before or run.examined.set_aside, "never_consumed": never_consumed},
    )


def _consumptions(run: Observation) -> Iterator[tuple[Site | None, int, bool]]:
    """For each two consecutive steps of one optimizer: the first backward between them, its step, and whether nothing
    of what the first step consumed was cleared before the second one.

    By optimizer, and over every backward in between: a generator's loss adds to the critic's gradients too, which the
    critic's own zero_grad then clears.
    """
    windows = run.tape.windows
    last: dict[int, int] = {}
    for position, window in enumerate(windows):
        for sample in window.steps:
            start = last.get(sample.optimizer)
            last[sample.optimizer] = position
            # Between sampled steps that are not neighbours, anything may have been cleared unseen.
            if start is None or windows[position].step - windows[start].step != position - start:
                continue
            between = [backward for later in windows[start + 1 : position + 1] for backward in later.backwards]
            consumed = _nonzero_consumed(windows[start], sample.optimizer)
            if between and consumed:
                kept = _untouched(consumed, sample_before(windows[start], sample.optimizer), between)
                yield between[0].site, windows[start + 1].step, kept


def sample_before(window: Window, optimizer: int) -> StepSample:
    """The optimizer's last step in that window."""
    return next(step for step in reversed(window.steps) if step.optimizer == optimizer)


def _untouched(consumed: set[int], step: StepSample, between: list[BackwardSample]) -> bool:
    """Whether what the step consumed is still there, bit for bit, at the next backward, and never cleared after it.

    A script that scales its gradients down instead of clearing them keeps a momentum there, on purpose.
    """
    first = between[0].left_over
    same = all(serial in first and first[serial] == step.left.get(serial) for serial in consumed)
    # Where backward runs on copies, the original's gradients lie there untouched until new ones are handed over.
    added = any(b.gradients[s][1] != b.left_over.get(s) for b in between for s in consumed if s in b.gradients)
    return same and added and all(consumed <= set(backward.left_over) for backward in between)


def _nonzero_consumed(window: Window, optimizer: int) -> set[int]:
    consumed = {serial for step in window.steps if step.optimizer == optimizer for serial in step.consumed}
    nonzero = {s for b in window.backwards for s, (state, _) in b.gradients.items() if state == "nonzero"}
    return consumed & nonzero


def _present(learning: list[ParameterEntry]) -> Row:
    absent = [e for e in learning if all(state == "missing" for state in e.states)]
    text = f"{len(learning) - len(absent)}/{len(learning)} reached parameters"
    if absent:
        text += f"; none for {names(absent)}"
    return Row(
        id="GRADIENT/present",
        status="evidence" if absent else "pass",
        text=text,
        values={"present": len(learning) - len(absent), "expected": len(learning)},
    )


def _finite(run: Observation, learning: list[ParameterEntry]) -> Row:
    for backward in run.backwards:
        broken = [run.by_serial(s) for s, (state, _) in backward.gradients.items() if state == "nonfinite"]
        if broken:
            return _broken(run, backward.index, backward.loss, broken)
    if ends_nonfinite(run):
        return Row(
            id="GRADIENT/finite",
            status="suspected",
            text=f"finite in every sampled step, yet the loss is not from step {run.tape.first_nonfinite_step} on",
            values={"nonfinite": 0, "nonfinite_from_step": run.tape.first_nonfinite_step},
            where=[run.tape.last_backward_site] if run.tape.last_backward_site else [],
            step=run.tape.first_nonfinite_step,
        )
    return Row(
        id="GRADIENT/finite",
        status="pass",
        text=f"{len(learning)}/{len(learning)} in every sampled step",
        values={"nonfinite": 0},
    )


def _recovered(run: Observation, index: int) -> bool:
    """Whether a later sampled backward gave finite gradients only."""
    later = [b for b in run.backwards if b.index > index and b.gradients]
    return any(all(state != "nonfinite" for state, _ in b.gradients.values()) for b in later)


def _rule_rather_than_exception(run: Observation) -> bool:
    """Whether most backward calls gave a gradient that is not finite, of a loss that is, and no step came of them.

    A guard that skips those steps lets finite ones through, and hides how few they are. Few of them are sampled; but
    where each step took one backward with finite gradients, all other calls gave others. A script that replaces what
    is not finite, and steps, knows what it does.
    """
    known = [b for b in run.backwards if b.gradients and b.loss is not None and math.isfinite(b.loss)]
    broken = {b.index for b in known if any(state == "nonfinite" for state, _ in b.gradients.values())}
    finite = [sum(b.index not in broken for b in window.backwards) for window in run.tape.windows if window.steps]
    skipped = run.tape.backwards - run.tape.steps
    return 2 * skipped > run.tape.backwards and (2 * len(broken) > len(known) or set(finite) == {1})


def _cleaned(run: Observation) -> bool:
    """Whether every sampled step took finite gradients: the script replaces what is not before it steps."""
    taken = [sample.gradient_norm for sample in run.steps]
    return bool(taken) and all(length is not None and math.isfinite(length) for length in taken)


def _consumed(run: Observation) -> bool:
    """Whether the first step took non-finite gradients: a loss scale kept by hand skips such a step, as it should."""
    first = next(run.steps, None)
    return first is None or (first.gradient_norm is not None and not math.isfinite(first.gradient_norm))


def ends_nonfinite(run: Observation) -> bool:
    """Whether the loss turned non-finite after an update and stayed so, and no step before it outgrew its parameters.

    One skipped overflow on the way is no finding, and after such a step UPDATE/scale is the earlier suspicion in time.
    """
    values = run.tape.losses.value
    started = run.tape.first_nonfinite_step
    turned = started is not None and started > 1 and bool(values) and not math.isfinite(values[-1])
    return turned and not run.outgrown_steps()


def _broken(run: Observation, index: int, loss: float | None, broken: list[ParameterEntry]) -> Row:
    backward = next(b for b in run.backwards if b.index == index)
    scaled = run.tape.scaler_asked > 0
    text = f"non-finite from backward {index} on: {names(broken)}"
    status, basis = "evidence", None
    if loss is not None and math.isfinite(loss):
        text += f", while the loss was {loss:.6f}"
        # A gradient scaler overflows by design until its scale fits; skipping every step is the fault.
        by_design = scaled and (run.tape.steps or run.tape.scaler_skipped <= SKIPS_BY_DESIGN)
        if not by_design and (scaled or (index == 1 and _consumed(run))):
            status, basis = "fail", "exact"
        elif not scaled and not run.outgrown_steps():
            passing = _recovered(run, index) or _cleaned(run)
            status = "suspected" if not passing or _rule_rather_than_exception(run) else "evidence"
    elif ends_nonfinite(run):
        status = "suspected"
    return Row.model_validate(
        {
            "id": "GRADIENT/finite",
            "status": status,
            "basis": basis,
            "text": text,
            "values": {"nonfinite": len(broken), "loss": loss},
            "where": [backward.site] if backward.site and status != "evidence" else [],
            "step": next(w.step for w in run.tape.windows for b in w.backwards if b.index == index),
        }
    )


def _norm(run: Observation, learning: list[ParameterEntry]) -> Row:
    first = next(b for b in run.backwards if b.gradients)
    lengths = [first.gradients[e.serial][1] for e in learning if e.serial in first.gradients]
    known = [length for length in lengths if length is not None]
    total = math.sqrt(sum(length * length for length in known))
    return Row(
        id="GRADIENT/norm",
        status="evidence",
        text=f"{total:.4e} over {len(known)} parameters after the first backward",
        values={"norm": total},
    )
