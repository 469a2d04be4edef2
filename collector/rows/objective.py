"""OBJECTIVE: is this scalar the loss that was meant?"""

from __future__ import annotations

import math

from weaklink.collector.evidence import Row
from weaklink.collector.rows import factor, reduction, sequence
from weaklink.collector.rows.independence import independence
from weaklink.collector.rows.loss_by_hand import by_hand, fed, floor, shapes
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.tape import BackwardSample, ForwardSample


def rows(run: Observation) -> list[Row]:
    """Rows about mode, outputs and the loss."""
    forward = next((f for w in run.tape.windows for f in w.forwards), None)
    backward = next(run.backwards, None)
    return [
        _mode(run),
        _outputs(forward),
        shapes(run),
        _loss(run, backward),
        by_hand(run, backward),
        fed(run),
        floor(run),
        *factor.rows(run),
        *sequence.rows(run),
        *reduction.rows(run),
        independence(run),
    ]


def _mode(run: Observation) -> Row:
    trained = [f for w in run.tape.windows if w.backwards for f in w.forwards]
    if not trained:
        return Row(
            id="OBJECTIVE/mode",
            status="not_measured",
            text="train or eval mode",
            reason="no model was called with gradients enabled before a backward",
        )
    trained = _being_trained(run, trained)
    if not trained:
        return Row(
            id="OBJECTIVE/mode",
            status="not_measured",
            text="train or eval mode",
            reason="no optimizer holds anything of the models that were called",
        )
    in_eval = [f for f in trained if not f.training and f.live_modes]
    if len(in_eval) == len(trained):
        kinds = ", ".join(in_eval[0].live_modes)
        return Row(
            id="OBJECTIVE/mode",
            status="suspected",
            text=f"every sampled training step ran in eval mode, with {kinds} switched off",
            values={"training": False, "modules": in_eval[0].live_modes},
            where=[f.site for f in in_eval[:1] if f.site],
            step=1,
        )
    text = "train mode" if trained[0].training else "eval mode, no module that depends on it"
    return Row(id="OBJECTIVE/mode", status="pass", text=text, values={"training": trained[0].training})


def _being_trained(run: Observation, forwards: list[ForwardSample]) -> list[ForwardSample]:
    """Without the calls of models that no optimizer holds: an input or a prompt is optimised against such a one.

    A part called by itself goes by its whole model's number: nothing is known of it.
    """
    known = {e.root for e in run.parameters}
    held = {e.root for e in run.parameters if e.owners}
    if not run.tape.steps:
        return forwards
    return [f for f in forwards if f.root not in known or f.root in held]


def _outputs(forward: ForwardSample | None) -> Row:
    if forward is None or forward.output is None or forward.output.mean is None:
        return Row(
            id="OBJECTIVE/outputs",
            status="not_measured",
            text="outputs of the model",
            reason="no floating-point output was seen",
        )
    out = forward.output
    return Row(
        id="OBJECTIVE/outputs",
        status="pass" if out.finite else "evidence",
        text=f"{list(out.shape)}, mean {out.mean:+.4f}, std {out.std:.4f}, max abs {out.max_abs:.4f}"
        + ("" if out.finite else ", not finite"),
        values={"shape": list(out.shape), "mean": out.mean, "std": out.std, "max_abs": out.max_abs},
    )


def _loss(run: Observation, backward: BackwardSample | None) -> Row:
    losses = run.tape.losses
    if run.tape.no_scalar is not None:
        return Row(
            id="OBJECTIVE/loss",
            status="fail",
            basis="exact",
            text=f"the loss is no scalar tensor ({run.tape.no_scalar}), so there is nothing to differentiate",
        )
    if backward is None or not losses.value:
        reason = "backward was never called" if run.tape.backwards == 0 else "backward was called on no scalar"
        return Row(id="OBJECTIVE/loss", status="not_measured", text="value of the loss", reason=reason)
    first, last = losses.value[0], losses.value[-1]
    # A loss scaled by hand may overflow until its scale fits, and once more when the scale grows: a finite loss in
    # between could not be, had an update taken a broken one in.
    broken = not any(math.isfinite(value) for value in losses.value)
    site = [backward.site] if backward.site else []
    return Row(
        id="OBJECTIVE/loss",
        status="fail" if broken else "pass",
        basis="exact" if broken else None,
        text=f"{first:.6f} at the first backward, {last:.6f} at the last"
        + (" (not finite before any update)" if broken else ""),
        values={"first": first, "last": last},
        where=site if broken else [],
        step=1 if broken else None,
    )
