"""Statistics of inputs and outputs, and the losses torch ships computed again by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weaklink.collector.tensors import dense, digest
from weaklink.collector.watch.tape import LossSample, TensorSummary

# Statistics read the tensor once in float64; larger ones are described by shape alone.
SUMMARY_LIMIT = 64_000_000
CLASS_LIMIT = 1000
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


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

    By hand: negative log-likelihood sum(-w[t] * logp[t]) / sum(w[t]) over targets not ignored; mean squared error;
    binary cross entropy max(x,0) - x*t + log(1+exp(-|x|)). All in float64, from the saved tensors alone.
    """
    name = node.name()
    if name in ("NllLossBackward0", "NllLoss2DBackward0"):
        return _nll(node)
    if name == "MseLossBackward0":
        return _regression(node, "mean squared error", lambda x, t: (x - t) ** 2)
    if name == "BinaryCrossEntropyWithLogitsBackward0":
        return _regression(
            node,
            "binary cross entropy with logits",
            lambda x, t: x.clamp(min=0) - x * t + torch.log1p(torch.exp(-x.abs())),
        )
    return None


def _nll(node: Any) -> LossSample:
    log_probabilities, target = node._saved_self.detach(), node._saved_target.detach()
    weight, ignore = node._saved_weight, int(node._saved_ignore_index)
    kept = target != ignore
    sample = LossSample(
        "cross entropy",
        _REDUCTIONS.get(int(node._saved_reduction), "?"),
        tuple(log_probabilities.shape),
        summarize(target),
        digest(target),
        ignored=int((~kept).sum()),
    )
    flat = target[kept].flatten()
    if flat.numel():
        counts = torch.bincount(flat.clamp(min=0)[: 2**24].cpu(), minlength=1)
        if len(counts) <= CLASS_LIMIT:
            sample.class_counts = {label: int(count) for label, count in enumerate(counts.tolist()) if count}
    classes_last = log_probabilities if log_probabilities.dim() == 2 else log_probabilities.movedim(1, -1)
    # An ignored target may be any number (255): as an index it would end a CUDA context.
    index = torch.where(kept, target, torch.zeros_like(target))
    picked = classes_last.double().gather(-1, index.unsqueeze(-1)).squeeze(-1)
    weights = torch.ones_like(picked) if weight is None else weight.detach().double()[index]
    # torch.where, not a product: an ignored position may hold log(0), and 0 * inf is NaN.
    total = -torch.where(kept, picked * weights, torch.zeros_like(picked)).sum()
    if sample.reduction == "mean":
        total = total / (weights * kept).sum()
    if sample.reduction in ("mean", "sum"):
        sample.by_hand = float(total)
    if log_probabilities.dim() == 2 and bool(kept[0]):
        sample.example = {"target": int(target[0]), "loss": float(-picked[0])}
    return sample


def _regression(node: Any, kind: str, element: Any) -> LossSample:
    outputs, target = node._saved_self.detach(), node._saved_target.detach()
    reduction = _REDUCTIONS.get(int(node._saved_reduction), "?")
    sample = LossSample(kind, reduction, tuple(outputs.shape), summarize(target), digest(target))
    for name in ("_saved_weight", "_saved_pos_weight"):
        if getattr(node, name, None) is not None:
            return sample
    elements = element(outputs.double(), target.double())
    if sample.reduction in ("mean", "sum"):
        sample.by_hand = float(elements.mean() if sample.reduction == "mean" else elements.sum())
    if outputs.numel():
        sample.example = {
            "output": float(outputs.flatten()[0]),
            "target": float(target.flatten()[0]),
            "loss": float(elements.flatten()[0]),
        }
    return sample
