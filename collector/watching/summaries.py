"""Statistics of inputs and outputs, and the losses torch ships read off the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weaklink.collector.losses.by_hand import reduce
from weaklink.collector.losses.classes import ClassOptions, index_loss
from weaklink.collector.losses.elementwise import binary_from_probabilities, binary_from_scores, regression
from weaklink.collector.tensors import dense, digest
from weaklink.collector.watching.composites import REDUCTIONS, ignored_index, match, target_shape
from weaklink.collector.watching.nodes import before, feeding, name_of
from weaklink.collector.watching.tape import LossSample, TensorSummary

# Statistics read the tensor once in float64; larger ones are described by shape alone.
SUMMARY_LIMIT = 64_000_000
CLASS_LIMIT = 1000
_REGRESSIONS = {
    "MseLossBackward0": "mean squared error",
    "SmoothL1LossBackward0": "smooth L1",
    "HuberLossBackward0": "Huber",
}
_BINARY = {
    "BinaryCrossEntropyBackward0": "binary cross entropy",
    "BinaryCrossEntropyWithLogitsBackward0": "binary cross entropy with logits",
}


def summarize(tensor: Tensor) -> TensorSummary:
    """Shape, type and, for floating tensors, moments over all entries; columns are the last dimension's."""
    summary = TensorSummary(
        tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device.type), True
    )
    values = dense(tensor)
    if not values.is_floating_point() or values.numel() == 0 or values.numel() > SUMMARY_LIMIT:
        return summary
    if values.device.type == "meta" or values.is_nested:
        return summary
    with torch.no_grad():
        wide = values.double() if values.device.type != "mps" else values.float()
        finite = torch.isfinite(wide).all()
        stats = torch.stack(
            [wide.mean(), wide.std(correction=1 if wide.numel() > 1 else 0), wide.abs().max(), finite.to(wide.dtype)]
        ).tolist()
        summary.mean, summary.std, summary.max_abs, summary.finite = stats[0], stats[1], stats[2], bool(stats[3])
        if values.dim() == 2 and values.shape[0] > 1:
            still = (values == values[:1]).all(dim=0)
            summary.columns, summary.constant_columns = values.shape[1], int(still.sum())
    return summary


def loss_sample(node: Any) -> LossSample | None:
    """What a loss node of the graph saved: its target, and the loss by hand. None for any other node.

    Read are the losses over classes, mean squared error, smooth L1, Huber, binary cross entropy with and without
    logits, and the divergence. The mean absolute error keeps the signs of its differences alone: it is not read.
    """
    name = node.name()
    if name in ("NllLossBackward0", "NllLoss2DBackward0"):
        return _nll(node)
    if name in _REGRESSIONS:
        return _regression(node, _REGRESSIONS[name])
    if name in _BINARY:
        return _binary(node, _BINARY[name])
    composite = match(node)
    if composite is None:
        return None
    sample = _sample(composite.kind, composite.reduction, composite.log_softmax._saved_result, composite.targets)
    if composite.indexed is not None:
        _count(sample, composite.targets, ignored_index(composite.indexed))
    if composite.log_softmax._saved_result.numel() <= SUMMARY_LIMIT:
        sample.hand = composite.by_hand()
    return sample


def targets_of(node: Any) -> Tensor | None:
    """The targets that a loss node of the graph saved."""
    targets = getattr(node, "_saved_target", None)
    if targets is None and (composite := match(node)) is not None:
        targets = composite.targets
    return targets if isinstance(targets, Tensor) else None


def _sample(kind: str, reduction: str, outputs: Tensor, targets: Tensor) -> LossSample:
    targets = targets.detach()
    return LossSample(kind, reduction, tuple(outputs.shape), summarize(targets), digest(targets))


def _count(sample: LossSample, targets: Tensor, ignored: int) -> None:
    """Class counts and ignored positions of class indices."""
    targets = targets.detach()
    kept = targets != ignored
    sample.ignored = int((~kept).sum())
    flat = targets[kept].flatten()
    if flat.numel():
        counts = torch.bincount(flat.clamp(min=0)[: 2**24].cpu(), minlength=1)
        if len(counts) <= CLASS_LIMIT:
            sample.class_counts = {label: int(count) for label, count in enumerate(counts.tolist()) if count}


def _nll(node: Any) -> LossSample:
    logs, targets, source = node._saved_self, node._saved_target, feeding(node)
    kind, shaped = "negative log-likelihood", logs
    if name_of(source) == "LogSoftmaxBackward0":
        # In more than two dimensions torch brings outputs to four: the log-softmax has them as they were.
        kind, shaped = "cross entropy", source._saved_result
    sample = _sample(kind, REDUCTIONS.get(int(node._saved_reduction), "none"), shaped, targets)
    ignored = ignored_index(node)
    _count(sample, targets, ignored)
    unreduced = index_loss(logs, targets, ClassOptions(node._saved_weight, ignored), kind)
    if unreduced is not None:
        shapes = tuple(shaped.shape), target_shape(shaped, targets)
        sample.hand = reduce(unreduced, sample.reduction, logs, targets, shapes)
    return sample


def _regression(node: Any, kind: str) -> LossSample:
    joint, reduction = node._saved_self, REDUCTIONS.get(int(node._saved_reduction), "none")
    shapes = _own_shape(node, 0, joint, reduction), _own_shape(node, 1, node._saved_target, reduction)
    sample = _sample(kind, reduction, joint, node._saved_target)
    sample.output_shape = shapes[0]
    if joint.numel() <= SUMMARY_LIMIT:
        outputs, targets = _narrow(joint), _narrow(node._saved_target)
        width = getattr(node, "_saved_beta", getattr(node, "_saved_delta", 1.0))
        sample.hand = reduce(regression(kind, outputs, targets, float(width)), reduction, outputs, targets, shapes)
    return sample


def _binary(node: Any, kind: str) -> LossSample:
    outputs, targets = node._saved_self, node._saved_target
    sample = _sample(kind, REDUCTIONS.get(int(node._saved_reduction), "none"), outputs, targets)
    if outputs.numel() <= SUMMARY_LIMIT:
        if kind == "binary cross entropy":
            unreduced = binary_from_probabilities(outputs, targets, node._saved_weight)
        else:
            unreduced = binary_from_scores(outputs, targets, node._saved_weight, node._saved_pos_weight)
        sample.hand = reduce(unreduced, sample.reduction, outputs, targets)
    return sample


def _own_shape(node: Any, position: int, joint: Tensor, reduction: str) -> tuple[int, ...]:
    """Shape of an argument before torch broadcast it: a view whose stride is zero where it repeats.

    An `expand` that is in the graph kept it. Otherwise a repeated leading dimension may have been one entry long or
    not there at all; what is reduced to one number is taken to have had none, as `(B, 1)` against `(B,)` has. Not so
    beside outputs to which the script added a dimension: `(N, 1)` against `(1, N)` is how all pairs are asked for.
    """
    expanded = before(node, position)
    if name_of(expanded) == "ExpandBackward0":
        return tuple(int(length) for length in expanded._saved_self_sym_sizes)
    shape = list(_narrow(joint).shape)
    paired = any(name_of(_unexpanded(node, side)) == "UnsqueezeBackward0" for side in (0, 1))
    while reduction != "none" and not paired and shape and shape[0] != joint.shape[joint.dim() - len(shape)]:
        shape.pop(0)
    return tuple(shape)


def _unexpanded(node: Any, position: int) -> Any:
    inner = before(node, position)
    return before(inner) if name_of(inner) == "ExpandBackward0" else inner


def _narrow(tensor: Tensor) -> Tensor:
    """One entry along each dimension that repeats itself."""
    values = tensor.detach()
    for dimension, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and length > 1:
            values = values.narrow(dimension, 0, 1)
    return values
