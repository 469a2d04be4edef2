"""OBJECTIVE, the rows that know the loss: its shapes, its value by hand, its floor, and what was fed to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from weaklink.collector.evidence import Row, Site, Value
from weaklink.collector.losses import ByHand, softmax_floor
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.crossings import Crossing
from weaklink.collector.watching.loss_graph import LossFindings
from weaklink.collector.watching.tape import BackwardSample, GraphSample, LossCall

# By hand in float64 against the run's own dtype: float32 carries 24 bits, a mean over a batch loses some.
BY_HAND_RELATIVE = 1e-4
_NO_LOSS = (
    "the loss is none of cross entropy, negative log-likelihood, mean squared error, smooth L1, Huber, "
    "binary cross entropy, divergence"
)


@dataclass(frozen=True)
class Known:
    """A loss that was computed again by hand, and where and when it was seen."""

    hand: ByHand
    site: Site | None
    step: int


def shapes(run: Observation) -> Row:
    """Whether outputs and targets met as they were meant to, element by element."""
    text, losses = "shapes of outputs and targets at the loss", list(_known(run))
    if run.record(LossFindings).crossings:
        return _all_pairs(*run.record(LossFindings).crossings[0])
    if not losses and run.record(LossFindings).meetings:
        shape = list(run.record(LossFindings).meetings[0][1])
        text = f"what the model gave meets given numbers entry by entry, {shape}"
        return Row(id="OBJECTIVE/shapes", status="pass", text=text, values={"outputs": shape, "targets": shape})
    if not losses:
        return Row(id="OBJECTIVE/shapes", status="not_measured", text=text, reason=_why_unknown(run))
    crossed = next((loss for loss in losses if _crossed(loss.hand)), None)
    shown = crossed or losses[0]
    hand = shown.hand
    text = f"outputs {list(hand.output_shape)}, targets {list(hand.target_shape)}"
    values: dict[str, Value] = {"outputs": list(hand.output_shape), "targets": list(hand.target_shape)}
    if hand.broadcast is not None:
        text += f", broadcast to {list(hand.broadcast)}"
        values["broadcast"] = list(hand.broadcast)
    if crossed is not None:
        text += ": every output is compared with every target"
    # Where the outputs are not one a row, they may be the quantiles of one example, each meant to meet every sample.
    accused = crossed is not None and _one_a_row(run, hand)
    status = "fail" if accused else "suspected" if crossed else "pass" if hand.broadcast is None else "evidence"
    return Row(
        id="OBJECTIVE/shapes",
        status=status,  # type: ignore[arg-type]
        basis="exact" if accused else None,
        text=text,
        values=values,
        where=[crossed.site] if crossed and crossed.site else [],
        step=crossed.step if crossed else None,
    )


def _all_pairs(step: int, crossing: Crossing) -> Row:
    """A product of all pairs in a loss written by hand."""
    return Row(
        id="OBJECTIVE/shapes",
        status="fail",
        basis="exact",
        text=f"what the model gave, {list(crossing.outputs)}, is multiplied with {list(crossing.given)} and broadcast "
        f"to {list(crossing.joint)}: each example meets every example's target",
        values={"outputs": list(crossing.outputs), "targets": list(crossing.given), "broadcast": list(crossing.joint)},
        where=[site for site in (crossing.made, crossing.site) if site],
        step=step,
    )


def _crossed(hand: ByHand) -> bool:
    """One target an output, and yet more comparisons than outputs: (B, 1) against (B,).

    Only where the shapes differ in their number of dimensions. (B, N, 1) against (B, 1, N) is how all pairs are asked
    for, as the losses over quantiles do.
    """
    if hand.broadcast is None or len(hand.output_shape) == len(hand.target_shape):
        return False
    outputs, targets = math.prod(hand.output_shape), math.prod(hand.target_shape)
    return outputs == targets < math.prod(hand.broadcast)


def _one_a_row(run: Observation, hand: ByHand) -> bool:
    """Whether a model was called with as many rows, or rows times steps, as there are outputs; also where none was."""
    shapes = [summary.shape for w in run.tape.windows for f in w.forwards for summary in f.inputs]
    outputs = math.prod(hand.output_shape)
    return not shapes or any(math.prod(shape[:n]) == outputs for shape in shapes for n in range(1, len(shape) + 1))


def by_hand(run: Observation, backward: BackwardSample | None) -> Row:
    """The first loss computed again by hand against the one that was reported."""
    text = "the loss computed again by hand"
    call = _first_call(run)
    if call is not None:
        hand, reported, reason = call.by_hand, call.reported, "no scalar loss was reported"
    else:
        hand, reported, reason = _of_graph(backward)
    if hand is None or reported is None:
        return Row(id="OBJECTIVE/by_hand", status="not_measured", text=text, reason=reason)
    if hand.value is None:
        reason = f"the loss does not reduce to one number itself{_first(hand)}"
        return Row(id="OBJECTIVE/by_hand", status="not_measured", text=text, reason=reason)
    close = math.isclose(hand.value, reported, rel_tol=BY_HAND_RELATIVE, abs_tol=max(1e-7, hand.rounding))
    return Row(
        id="OBJECTIVE/by_hand",
        # A loss times a constant, or with a term of its own, differs: that is no contradiction.
        status="pass" if close else "evidence",
        text=f"{hand.kind}: {hand.value:.6f} by hand, {reported:.6f} reported{_first(hand)}",
        values={"by_hand": hand.value, "reported": reported, "reduction": hand.reduction, "first": hand.first},
    )


def _of_graph(backward: BackwardSample | None) -> tuple[ByHand | None, float | None, str]:
    if backward is None or backward.loss is None:
        return None, None, "no scalar loss was seen"
    losses = backward.graph.losses if backward.graph is not None else []
    if not losses:
        unread = backward.graph.saved_tensors_unread if backward.graph is not None else None
        return None, None, unread or _NO_LOSS
    if len(losses) > 1:
        return None, None, "the loss is a sum of several terms"
    return losses[0].hand, backward.loss, "the loss has too many elements to be computed again"


def _first(hand: ByHand) -> str:
    if hand.first is None:
        return ""
    # Example 0 has a loss of its own where each example has one.
    one_each = hand.kind in ("cross entropy", "negative log-likelihood")
    one_each = one_each or hand.output_shape[:1] == (math.prod(hand.output_shape),)
    target = "" if hand.first_target is None else f"target {_plain(hand.first_target)}, "
    return f"; {'example' if one_each else 'element'} 0: {target}loss {hand.first:.6f}"


def _plain(value: float | int) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def floor(run: Observation) -> Row:
    """The least value that the loss can take for its targets, and whether it lies below that."""
    text, losses = "the least value that the loss can take", list(_known(run))
    if not losses:
        return Row(id="OBJECTIVE/floor", status="not_measured", text=text, reason=_why_unknown(run))
    below = next((loss for loss in losses if loss.hand.below_floor), None)
    shown = below or losses[0]
    hand = shown.hand
    if hand.value is None or hand.floor is None or not math.isfinite(hand.value):
        return Row(id="OBJECTIVE/floor", status="not_measured", text=text, reason=_why_no_floor(hand))
    text = f"{hand.value:.6f} at step {shown.step}, the least for these targets is {hand.floor:.6f}"
    values: dict[str, Value] = {"loss": hand.value, "floor": hand.floor}
    if below is not None:
        text += ": what was fed to it are no log-probabilities"
    elif (reachable := _reachable(run, hand)) is not None:
        text += f"; with probabilities taken for raw scores it is {reachable:.6f}"
        values["softmax_floor"] = reachable
    # Of a likelihood only where no log-density can have been meant.
    likelihood = hand.kind == "negative log-likelihood"
    accused = below is not None and not _near_logarithm(run) and (not likelihood or _raw_scores(run))
    return Row(
        id="OBJECTIVE/floor",
        status="fail" if accused else "evidence" if below else "pass",
        basis="exact" if accused else None,
        text=text,
        values=values,
        where=[shown.site] if accused and shown.site else [],
        step=shown.step if accused else None,
    )


def _why_no_floor(hand: ByHand) -> str:
    if hand.value is None:
        return "the loss does not reduce to one number itself"
    if not math.isfinite(hand.value):
        return "the loss is not finite"
    return "these targets, weights or shapes leave the loss without a floor that is known"


def _reachable(run: Observation, hand: ByHand) -> float | None:
    """The floor behind a softmax of its own: of a mean over class indices or one-hot targets."""
    if hand.kind != "cross entropy" or hand.reduction != "mean" or hand.floor != 0.0:
        return None
    if not any(graph.softmax_into_log_softmax for _, graph in _graphs(run)):
        return None
    return softmax_floor(hand.output_shape[1] if len(hand.output_shape) > 1 else hand.output_shape[0])


def fed(run: Observation) -> Row:
    """What was fed to the loss: raw scores where it wants those, log-probabilities where it wants those."""
    walked, losses = list(_graphs(run)), list(_known(run, graphs_too=True))
    if not walked:
        return Row(
            id="OBJECTIVE/fed", status="not_measured", text="what was fed to the loss", reason="no graph was walked"
        )
    pairs = (
        (
            "softmax_into_log_softmax",
            "a softmax feeds the log-softmax of the loss: probabilities are taken for raw scores",
        ),
        ("sigmoid_into_logits", "a sigmoid feeds a loss that applies its own: probabilities are taken for raw scores"),
    )
    for pair, text in pairs:
        found = next((backward for backward, graph in walked if getattr(graph, pair)), None)
        if found is not None:
            called = found.graph.softmax_site if found.graph is not None else None
            return _wrongly_fed(text, pair, [called, found.site], 1)
    across = next((backward for backward, graph in walked if graph.softmax_across), None)
    if across is not None:
        called = across.graph.softmax_site if across.graph is not None else None
        return Row(
            id="OBJECTIVE/fed",
            # A matching is normalised along both dimensions; classes are not.
            status="suspected",
            text="a softmax along another dimension feeds the log-softmax of the loss",
            values={"softmax_into_log_softmax": False, "softmax_across": True},
            where=[site for site in (called, across.site) if site],
            step=1,
        )
    divergences = run.record(LossFindings).divergences
    if (wrong := next(((step, one) for step, one in divergences if one.wrong is not None), None)) is not None:
        step, one = wrong
        return _wrongly_fed(f"the divergence: {one.wrong}", "divergence_inputs", [one.site], step)
    positive = [loss for loss in losses if loss.hand.positive]
    if positive:
        return _positive(run, positive)
    first = losses[0].hand if losses else None
    text = f"{first.kind} on {list(first.output_shape)}" if first is not None else "no softmax feeds a log-softmax"
    twice = any(graph.log_softmax_into_log_softmax for _, graph in walked)
    return Row(
        id="OBJECTIVE/fed",
        # The log-softmax of a log-softmax is the same numbers again.
        status="evidence" if twice else "pass",
        text=f"{text}; a log-softmax feeds a log-softmax, which changes nothing" if twice else text,
        values={"softmax_into_log_softmax": False, "log_softmax_into_log_softmax": twice},
    )


def _positive(run: Observation, losses: list[Known]) -> Row:
    """Entries above zero where log-probabilities belong. Scaled or shifted logarithms and densities may have them."""
    likelihood = next((loss for loss in losses if loss.hand.kind == "negative log-likelihood"), None)
    shown = likelihood or losses[0]
    text = f"entries above zero are fed to the {shown.hand.kind} as log-probabilities"
    doubtful = likelihood is not None and not _near_logarithm(run)
    if likelihood is not None and doubtful and _raw_scores(run):
        text += ": raw scores are taken for them"
        return _wrongly_fed(text, "positive_log_probabilities", [likelihood.site], likelihood.step)
    return Row(
        id="OBJECTIVE/fed",
        status="suspected" if doubtful else "evidence",
        text=text,
        values={"softmax_into_log_softmax": False, "positive_log_probabilities": True},
        where=[likelihood.site] if likelihood is not None and doubtful and likelihood.site else [],
        step=likelihood.step if likelihood is not None and doubtful else None,
    )


def _wrongly_fed(text: str, what: str, sites: list[Site | None], step: int) -> Row:
    return Row(
        id="OBJECTIVE/fed",
        status="fail",
        basis="exact",
        text=text,
        values={what: True},
        where=[site for site in sites if site],
        step=step,
    )


def _first_call(run: Observation) -> LossCall | None:
    return next((call for call in run.tape.loss_calls if call.by_hand is not None), None)


def _known(run: Observation, graphs_too: bool = False) -> Iterator[Known]:
    """Losses whose function is known; where there is none, or with `graphs_too`, those read off the graph as well."""
    for call in run.tape.loss_calls:
        if call.by_hand is not None:
            yield Known(call.by_hand, call.site, call.step)
    if _first_call(run) is not None and not graphs_too:
        return
    for window in run.tape.windows:
        for backward in window.backwards:
            for loss in backward.graph.losses if backward.graph is not None else []:
                if loss.hand is not None:
                    yield Known(loss.hand, loss.site or backward.site, window.step)


def _graphs(run: Observation) -> Iterator[tuple[BackwardSample, GraphSample]]:
    return ((b, b.graph) for b in run.backwards if b.graph is not None and b.graph.nodes)


def _near_logarithm(run: Observation) -> bool:
    """Whether log-probabilities may have been made on purpose; also where no graph was seen that could tell."""
    graphs = [graph for _, graph in _graphs(run)]
    return not graphs or any(graph.near_logarithm for graph in graphs)


def _raw_scores(run: Observation) -> bool:
    """Whether nothing but layers stands before a likelihood, so that it takes no logarithms by construction."""
    return any(graph.raw_scores_into_likelihood for _, graph in _graphs(run))


def _why_unknown(run: Observation) -> str:
    unread = next((graph.saved_tensors_unread for _, graph in _graphs(run) if graph.saved_tensors_unread), None)
    return unread or _NO_LOSS
