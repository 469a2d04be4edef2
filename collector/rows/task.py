"""TASK: does the target still describe the input?"""

from __future__ import annotations

import math

from weaklink.collector.evidence import Row, Value
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.rule import PERMUTATIONS
from weaklink.collector.watching.tape import LossSample, TensorSummary


def rows(run: Observation) -> list[Row]:
    """Rows about inputs and targets, as far as an observed run shows them."""
    inputs, target = _first_input(run), _first_loss(run)
    return [
        _meaning(run),
        _counts(run, inputs, target),
        _types(inputs, target),
        _finite(run, inputs),
        _classes(run, target),
        _scale(inputs),
        _supervised(run),
        _duplicates(run),
        _rule(run),
        # Of a script the stored rows are read: `rows/pairing.py`.
        *([_pairing(run)] if run.given or run.in_process else []),
    ]


def _first_input(run: Observation) -> TensorSummary | None:
    return next((f.inputs[0] for w in run.tape.windows for f in w.forwards if f.inputs), None)


def _first_loss(run: Observation) -> LossSample | None:
    return next((loss for b in run.backwards if b.graph for loss in b.graph.losses), None)


def _meaning(run: Observation) -> Row:
    text = run.declared.task if run.declared.task else "what one input and one target mean: not declared (--task)"
    return Row(id="TASK/meaning", status="evidence", text=text, values={"declared": run.declared.task is not None})


def _counts(run: Observation, inputs: TensorSummary | None, loss: LossSample | None) -> Row:
    if run.examined.rows_refused is not None:
        return Row(
            id="TASK/rows",
            status="fail",
            basis="exact",
            text=f"inputs and targets differ in their rows, and the loss refuses: {run.examined.rows_refused}",
        )
    if inputs is None or loss is None or not inputs.shape or not loss.target.shape:
        return _unseen("TASK/rows", "rows of inputs and targets", inputs, loss)
    first, second = inputs.shape[0], loss.target.shape[0]
    same = first == second
    return Row(
        id="TASK/rows",
        status="pass" if same else "evidence",
        text=f"{first} inputs, {second} targets" + ("" if same else " (targets may be flattened)"),
        values={"inputs": first, "targets": second},
    )


def _types(inputs: TensorSummary | None, loss: LossSample | None) -> Row:
    if inputs is None:
        return _unseen("TASK/types", "types and shapes", inputs, loss)
    text = f"input {inputs.dtype} {list(inputs.shape)} on {inputs.device}"
    if loss is not None:
        text += f", target {loss.target.dtype} {list(loss.target.shape)}"
    return Row(id="TASK/types", status="evidence", text=text, values={"input": inputs.dtype, "device": inputs.device})


def _finite(run: Observation, inputs: TensorSummary | None) -> Row:
    if inputs is None:
        return _unseen("TASK/finite", "finite inputs", inputs, None)
    broken = [
        (window, forward)
        for window in run.tape.windows
        for forward in window.forwards
        if any(not summary.finite for summary in forward.inputs)
    ]
    if not broken:
        return Row(id="TASK/finite", status="pass", text="every sampled input is finite", values={"finite": True})
    window, forward = broken[0]
    step = window.step
    # A mask of minus infinity, or a gap the model fills itself, is no fault: what comes of it in the loss decides. Nor
    # is a batch that the loop steps over: what it had spoiled would stay so.
    losses = [backward.loss for backward in window.backwards if backward.loss is not None]
    spoiled = any(not math.isfinite(loss) for loss in losses) and run.stays_nonfinite()
    return Row(
        id="TASK/finite",
        status="fail" if spoiled else "evidence",
        basis="exact" if spoiled else None,
        text=f"non-finite inputs at step {step}" + (", and the loss with them" if spoiled else ""),
        values={"finite": False},
        where=[forward.site] if forward.site else [],
        step=step,
    )


def _classes(run: Observation, loss: LossSample | None) -> Row:
    if run.examined.out_of_range is not None:
        return Row(
            id="TASK/classes",
            status="fail",
            basis="exact",
            text=f"targets are out of range: {run.examined.out_of_range}",
        )
    if loss is None or loss.class_counts is None:
        reason = "no cross entropy with class indices was seen" if loss is None else "the targets are no class indices"
        return Row(id="TASK/classes", status="not_measured", text="classes in the batch", reason=reason)
    counts = loss.class_counts
    total = sum(counts.values())
    majority = max(counts.values()) / total if total else 0.0
    shown = "/".join(str(counts[label]) for label in sorted(counts)[:10])
    return Row(
        id="TASK/classes",
        status="evidence",
        text=f"{len(counts)} classes in the first batch, counts {shown}, majority {majority:.4f}",
        values={"classes": len(counts), "counts": [counts[label] for label in sorted(counts)], "majority": majority},
    )


def _scale(inputs: TensorSummary | None) -> Row:
    if inputs is None or inputs.mean is None or inputs.std is None or inputs.max_abs is None:
        return Row(
            id="TASK/inputs",
            status="not_measured",
            text="scale of the inputs",
            reason="no floating-point input was seen" if inputs is None or inputs.mean is None else "no moments",
        )
    text = f"mean {inputs.mean:+.4f}, std {inputs.std:.4f}, max abs {inputs.max_abs:.4f}"
    values: dict[str, Value] = {
        "mean": inputs.mean,
        "std": inputs.std,
        "max_abs": inputs.max_abs,
    }
    if inputs.constant_columns is not None:
        text += f", {inputs.constant_columns}/{inputs.columns} columns constant"
        values["constant_columns"] = inputs.constant_columns
    return Row(id="TASK/inputs", status="evidence", text=text, values=values)


def _supervised(run: Observation) -> Row:
    samples = [(b, loss) for b in run.backwards if b.graph for loss in b.graph.losses if loss.indexed]
    if not samples:
        return Row(
            id="TASK/supervised",
            status="not_measured",
            text="share of supervised targets",
            reason="no cross entropy with class indices was seen",
        )
    total = sum(_size(loss) for _, loss in samples)
    ignored = sum(loss.ignored for _, loss in samples)
    # An auxiliary loss may have nothing to supervise in the batches that were sampled: every loss must be empty. One
    # that cannot be read shows in the gradients: targets that are ignored give none.
    others = any(not loss.indexed for b in run.backwards if b.graph for loss in b.graph.losses)
    others |= any(state == "nonzero" for b in run.backwards for state, _ in b.gradients.values())
    empty = total > 0 and ignored == total and not others
    return Row(
        id="TASK/supervised",
        status="fail" if empty else "pass" if not ignored else "evidence",
        basis="exact" if empty else None,
        text=f"{total - ignored} of {total} sampled targets are supervised",
        values={"supervised": total - ignored, "targets": total},
        where=[samples[0][0].site] if empty and samples[0][0].site else [],
        step=1 if empty else None,
    )


def _duplicates(run: Observation) -> Row:
    found = run.examined.duplicates
    if found is None:
        reason = run.examined.why_not("TASK/duplicates", "needs the batch in hand")
        return Row(id="TASK/duplicates", status="not_measured", text="equal rows in the batch", reason=reason)
    repeated, contradictory = found
    text = f"{repeated} rows repeat another row of the batch"
    text += f"; {contradictory} inputs stand with more than one target" if contradictory else ""
    return Row(
        id="TASK/duplicates",
        # Ids that collide and coarse features repeat by right: only counted.
        status="evidence" if repeated else "pass",
        text=text,
        values={"repeated": repeated, "contradictory": contradictory},
    )


def _rule(run: Observation) -> Row:
    text = "the declared rule against the targets"
    if not run.tape.rules:
        reason = "the rule's targets have not the shape of the loss's"
        if run.rule_problem is not None:
            reason = f"the declared rule gives no targets: {run.rule_problem}"
        elif not run.rule_declared:
            reason = "no rule was declared (--rule)"
        return Row(id="TASK/rule", status="not_measured", text=text, reason=reason)
    sample = run.tape.rules[0]
    share = sample.agreeing / sample.rows
    text = f"the rule gives {sample.agreeing} of {sample.rows} targets ({share:.4f})"
    values: dict[str, Value] = {"agreement": share, "agreeing": sample.agreeing, "rows": sample.rows}
    if sample.agreeing == sample.rows:
        return Row(id="TASK/rule", status="pass", text=text, values=values)
    # A rule that holds for some rows may be approximate; one that holds for no more than permuted targets give is not.
    # In a few rows, or with hardly more than one class, a single wrong label would look the same.
    broken = sample.agreeing <= sample.by_chance < sample.rows - 1
    shown = ", ".join(str(position) for position in sample.mismatched)
    text += f"; the best of {PERMUTATIONS} permutations has {sample.by_chance}" if broken else ""
    return Row(
        id="TASK/rule",
        status="fail" if broken else "suspected",
        basis="declared" if broken else None,
        text=f"{text}; first rows that differ: {shown}",
        values={**values, "by_chance": sample.by_chance, "mismatched": sample.mismatched},
        where=[f.site for w in run.tape.windows for f in w.forwards if f.site][:1],
        step=1,
    )


def _pairing(run: Observation) -> Row:
    found, text = run.examined.neighbours, "whether each target belongs to its input"
    if found is None:
        reason = run.examined.why_not("TASK/pairing", "needs the batch in hand")
        return Row(id="TASK/pairing", status="not_measured", text=text, reason=reason)
    rows, agreeing, by_chance = found
    return Row(
        id="TASK/pairing",
        # No more than chance: shuffled, or a task whose classes do not lie together. Nothing to accuse anybody of.
        status="pass" if agreeing > by_chance else "evidence",
        text=f"nearest neighbours share a target in {agreeing} of {rows} rows; "
        f"the best of {PERMUTATIONS} permutations has {by_chance}",
        values={"agreeing": agreeing, "rows": rows, "by_chance": by_chance},
    )


def _size(loss: LossSample) -> int:
    size = 1
    for length in loss.target.shape:
        size *= length
    return size


def _unseen(row_id: str, text: str, inputs: TensorSummary | None, loss: LossSample | None) -> Row:
    reason = "no model was called with a tensor" if inputs is None else "the loss keeps no target that can be read"
    return Row(id=row_id, status="not_measured", text=text, reason=reason)
