"""Losses that compare outputs and targets element by element. All formulas in float64, on tensors of joint shape."""

from __future__ import annotations

import torch
from torch import Tensor

from weaklink.collector.losses.by_hand import Unreduced, epsilon, times_log, wide

# torch's binary cross entropy holds its logarithms at this value: log(0) costs 100, not infinity.
_LOG_FLOOR = -100.0
# A distribution made in float32 and widened afterwards still sums to one in float32 only.
_SINGLE = torch.finfo(torch.float32).eps


def regression(
    kind: str, outputs: Tensor, targets: Tensor, width: float = 1.0, weight: Tensor | None = None
) -> Unreduced:
    """Mean squared or absolute error, smooth L1 (`width` is beta) or Huber (`width` is delta).

    The floor is zero. Where the outputs were broadcast, one output faces several targets: the squared error's floor is
    then the spread of these, the others' is not known here.
    """
    difference = wide(outputs) - wide(targets)
    distance = difference.abs()
    if kind == "mean squared error":
        losses = difference * difference
    elif kind == "mean absolute error" or (kind == "smooth L1" and width == 0.0):
        losses = distance
    elif kind == "smooth L1":
        losses = torch.where(distance < width, 0.5 * distance * distance / width, distance - 0.5 * width)
    else:
        losses = torch.where(distance < width, 0.5 * distance * distance, width * (distance - 0.5 * width))
    losses, factor = _weighted(losses, weight)
    floors = _regression_floors(kind, outputs, targets, losses)
    if floors is not None and factor is not None:
        floors = floors * factor if bool((factor >= 0).all()) and not bool(floors.any()) else None
    # torch divides a weighted mean by the weights for the squared and the absolute error, and by the count for Huber.
    by_weight = weight is not None and kind in ("mean squared error", "mean absolute error")
    divisor = wide(weight).sum() if weight is not None and by_weight else None
    return Unreduced(kind, losses, losses.abs(), floors, divisor)


def _regression_floors(kind: str, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor | None:
    spread = [d - losses.dim() for d in range(losses.dim()) if _size(outputs, d, losses) < losses.shape[d]]
    if not spread:
        return torch.zeros_like(losses)
    if kind != "mean squared error" or not losses.numel():
        return None
    facing = wide(targets).expand(losses.shape)
    return (facing - facing.mean(dim=spread, keepdim=True)) ** 2


def _size(tensor: Tensor, dimension: int, joint: Tensor) -> int:
    own = dimension - (joint.dim() - tensor.dim())
    return 1 if own < 0 else tensor.shape[own]


def binary_from_probabilities(outputs: Tensor, targets: Tensor, weight: Tensor | None = None) -> Unreduced:
    """Binary cross entropy -(y log p + (1-y) log(1-p)), each logarithm at least -100."""
    probability, label = wide(outputs), wide(targets)
    present = probability.log().clamp(min=_LOG_FLOOR)
    absent = torch.log1p(-probability).clamp(min=_LOG_FLOOR)
    losses, factor = _weighted(-(label * present + (1.0 - label) * absent), weight)
    return _binary("binary cross entropy", losses, label, 1.0 - label, factor)


def binary_from_scores(
    outputs: Tensor, targets: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None
) -> Unreduced:
    """Binary cross entropy with logits: -(w+ y log s(x) + (1-y) log(1-s(x))), s the logistic function."""
    score, label = wide(outputs), wide(targets)
    shares = label if pos_weight is None else label * wide(pos_weight)
    tail = torch.log1p(torch.exp(-score.abs()))
    # -log s(x) and -log(1 - s(x)) without overflow.
    losses = shares * (tail + (-score).clamp(min=0)) + (1.0 - label) * (tail + score.clamp(min=0))
    losses, factor = _weighted(losses, weight)
    return _binary("binary cross entropy with logits", losses, shares, 1.0 - label, factor)


def _binary(kind: str, losses: Tensor, present: Tensor, absent: Tensor, factor: Tensor | None) -> Unreduced:
    """With the floor: least of -(a log p + b log(1-p)) is (a+b) log(a+b) - a log a - b log b. No bound below zero."""
    floors = times_log(present + absent) - times_log(present) - times_log(absent)
    magnitudes = losses.abs() + (present.abs() + absent.abs())
    if factor is not None:
        floors = torch.where(factor >= 0, floors * factor, floors.new_tensor(torch.nan))
        magnitudes = losses.abs() + magnitudes * factor.abs()
    return Unreduced(kind, losses, magnitudes, floors)


def divergence(outputs: Tensor, targets: Tensor, log_target: bool) -> Unreduced:
    """Kullback-Leibler divergence t (log t - x), x the log-probabilities; with `log_target` the targets are log t.

    The floor is zero where the targets are distributions: along one dimension they sum to one, or to nothing.
    """
    x, given = wide(outputs), wide(targets)
    if log_target:
        share = given.exp()
        losses = share * (given - x)
    else:
        share = given
        losses = times_log(share) - share * x
    joint_share = share.expand(losses.shape)
    unit = max(epsilon(targets), _SINGLE)
    classes = _distribution_size(joint_share, unit)
    positive = x.amax() > epsilon(outputs) * max(classes or 1, 8) if x.numel() else x.new_tensor(0.0)
    magnitudes = joint_share * (1.0 + x.abs() + (classes or 0)) + losses.abs()
    floors = torch.zeros_like(losses) if classes is not None else None
    return Unreduced("Kullback-Leibler divergence", losses, magnitudes, floors, None, positive, unit)


def _distribution_size(shares: Tensor, unit: float) -> int | None:
    """Length of a dimension along which the shares sum to one or to nothing, within rounding; None if there is none."""
    if not shares.numel() or bool((shares < 0).any()):
        return None
    for dimension in range(shares.dim() - 1, -1, -1):
        sums, length = shares.sum(dimension), shares.shape[dimension]
        if bool((((sums - 1.0).abs() <= 8 * unit * length) | (sums == 0)).all()):
            return length
    return None


def _weighted(losses: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if weight is None:
        return losses, None
    factor = wide(weight)
    losses = losses * factor
    return losses, factor.expand(losses.shape)
