"""OBJECTIVE: is this scalar the loss that was meant?"""

from __future__ import annotations

import math

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watch.tape import BackwardSample, ForwardSample, LossSample

# By hand in float64 against the run's own dtype: float32 carries 24 bits, a mean over a batch loses some.
BY_HAND_RELATIVE = 1e-4


def rows(run: Observation) -> list[Row]:
    """Rows about mode, outputs and the loss."""
    forward = next((f for w in run.tape.windows for f in w.forwards), None)
    backward = next(run.backwards, None)
    return [_mode(run), _outputs(forward), _loss(run, backward), _by_hand(backward), _fed(run, backward)]


def _mode(run: Observation) -> Row:
    trained = [f for w in run.tape.windows if w.backwards for f in w.forwards]
    if not trained:
        return Row(
            id="OBJECTIVE/mode",
            status="not_measured",
            text="train or eval mode",
            reason="no model was called with gradients enabled before a backward",
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
    if backward is None or not losses.value:
        reason = "backward was never called" if run.tape.backwards == 0 else "backward was called on no scalar"
        return Row(id="OBJECTIVE/loss", status="not_measured", text="value of the loss", reason=reason)
    first, last = losses.value[0], losses.value[-1]
    # A loss scaled by hand may overflow until its scale fits: what stays non-finite is no such thing.
    broken = not math.isfinite(first) and not math.isfinite(last)
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


def _known_losses(backward: BackwardSample | None) -> list[LossSample]:
    return backward.graph.losses if backward is not None and backward.graph is not None else []


def _by_hand(backward: BackwardSample | None) -> Row:
    text = "the loss computed again by hand"
    losses = _known_losses(backward)
    if backward is None or backward.loss is None or not losses:
        reason = "the loss is none of cross entropy with indices, mean squared error, binary cross entropy with logits"
        if backward is None or backward.loss is None:
            reason = "no scalar loss was seen"
        elif backward.graph is not None and backward.graph.saved_tensors_unread:
            reason = backward.graph.saved_tensors_unread
        return Row(id="OBJECTIVE/by_hand", status="not_measured", text=text, reason=reason)
    loss = losses[0]
    if len(losses) > 1 or loss.by_hand is None:
        reason = "the loss is a sum of several terms" if len(losses) > 1 else "the loss is weighted or not reduced"
        return Row(id="OBJECTIVE/by_hand", status="not_measured", text=text, reason=reason)
    close = math.isclose(loss.by_hand, backward.loss, rel_tol=BY_HAND_RELATIVE, abs_tol=1e-7)
    example = ""
    if loss.example is not None:
        example = f"; example 0: target {_plain(loss.example['target'])}, loss {loss.example['loss']:.6f}"
    return Row(
        id="OBJECTIVE/by_hand",
        # A loss times a constant, or with a term of its own, differs: that is no contradiction.
        status="pass" if close else "evidence",
        text=f"{loss.kind}: {loss.by_hand:.6f} by hand, {backward.loss:.6f} reported{example}",
        values={"by_hand": loss.by_hand, "reported": backward.loss, "reduction": loss.reduction},
    )


def _plain(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _fed(run: Observation, backward: BackwardSample | None) -> Row:
    walked = [b for b in run.backwards if b.graph is not None and b.graph.nodes]
    if not walked:
        return Row(
            id="OBJECTIVE/fed", status="not_measured", text="what was fed to the loss", reason="no graph was walked"
        )
    doubled = [b for b in walked if b.graph is not None and b.graph.softmax_into_log_softmax]
    if doubled:
        return Row(
            id="OBJECTIVE/fed",
            status="fail",
            basis="exact",
            text="a softmax feeds the log-softmax of the loss: probabilities are taken for raw scores",
            values={"softmax_into_log_softmax": True},
            where=[doubled[0].site] if doubled[0].site else [],
            step=1,
        )
    losses = _known_losses(backward)
    text = f"{losses[0].kind} on {list(losses[0].output_shape)}" if losses else "no softmax feeds a log-softmax"
    return Row(id="OBJECTIVE/fed", status="pass", text=text, values={"softmax_into_log_softmax": False})
