"""Cross entropy and negative log-likelihood: losses over classes, from log-probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from weaklink.collector.losses.by_hand import Unreduced, epsilon, readable, times_log, wide


@dataclass(frozen=True)
class ClassOptions:
    """Options of a loss over classes. `weight` has one entry a class; `smoothing` is the share spread over all."""

    weight: Tensor | None = None
    ignore_index: int = -100
    smoothing: float = 0.0


def softmax_floor(num_classes: int) -> float:
    """Least cross entropy of one example when probabilities are taken for raw scores: log(1 + (C-1)/e).

    A probability vector that is right beyond doubt is (1, 0, ..., 0); taken for scores its softmax gives the right
    class only e / (e + C-1).

    Raises:
        ValueError: There is no class.
    """
    if num_classes < 1:
        raise ValueError("a softmax needs at least one class")
    return math.log1p((num_classes - 1) / math.e)


def log_probabilities(scores: Tensor) -> Tensor:
    """Log-softmax over the classes (dimension 1, or the only one) in float64: scores minus their logsumexp."""
    values = wide(scores)
    return values - torch.logsumexp(values, dim=_class_dimension(values), keepdim=True)


def index_loss(logs: Tensor, targets: Tensor, options: ClassOptions, kind: str) -> Unreduced | None:
    """Loss against class indices: -w[t] logp[t], and with smoothing s: (1-s) of that plus s/C of -sum_c w[c] logp[c].

    The mean divides by the sum of w[t] over the targets that are not ignored, as torch's does.

    Args:
        logs: Log-probabilities (N, C), (N, C, d1, ...) or (C).
        targets: Class indices (N), (N, d1, ...) or a scalar.
        options: Weight, ignored index, smoothing.
        kind: The loss in words.

    Returns:
        None for shapes or indices that torch refuses.
    """
    classes_last = readable(logs).movedim(_class_dimension(logs), -1)
    classes = classes_last.shape[-1]
    if targets.shape != classes_last.shape[:-1] or targets.is_floating_point():
        return None
    index = targets.detach().to(classes_last.device).long()
    kept = index != options.ignore_index
    # An ignored target may be any number (255): as an index it would end a CUDA context. So would one out of range.
    index = torch.where(kept, index, torch.zeros_like(index))
    if index.numel() and not bool(((index >= 0) & (index < classes)).all()):
        return None
    weight = _weight(options.weight, classes, classes_last)
    picked = wide(classes_last.gather(-1, index.unsqueeze(-1)).squeeze(-1))
    hard = weight[index]
    losses, masses, floors = -picked * hard, hard, torch.zeros_like(picked)
    if options.smoothing:
        share = options.smoothing / classes
        spread = (wide(classes_last) * weight).sum(-1)
        losses = (1.0 - options.smoothing) * losses - share * spread
        shares = share * weight.expand(classes_last.shape).clone()
        shares.scatter_add_(-1, index.unsqueeze(-1), ((1.0 - options.smoothing) * hard).unsqueeze(-1))
        floors, masses = least(shares), shares.sum(-1)
    # torch.where, not a product: an ignored position may hold log(0), and 0 * inf is NaN.
    zero = torch.zeros_like(picked)
    return Unreduced(
        kind,
        torch.where(kept, losses, zero),
        torch.where(kept, losses.abs() + masses.abs() * classes, zero),
        torch.where(kept, floors, zero) if options.weight is None or bool((weight >= 0).all()) else None,
        torch.where(kept, hard, zero).sum(),
        _positive(logs, classes) if kind != "cross entropy" else None,
    )


def probability_loss(logs: Tensor, targets: Tensor, options: ClassOptions) -> Unreduced | None:
    """Cross entropy against class probabilities of the outputs' own shape: -sum_c w[c] q[c] logp[c].

    The mean divides by the number of positions, whatever the weights, as torch's does.
    """
    if targets.shape != logs.shape or not targets.is_floating_point():
        return None
    classes_last = wide(logs).movedim(_class_dimension(logs), -1)
    classes = classes_last.shape[-1]
    shares = wide(targets).to(classes_last.device).movedim(_class_dimension(logs), -1)
    if options.smoothing:
        shares = shares * (1.0 - options.smoothing) + options.smoothing / classes
    shares = shares * _weight(options.weight, classes, classes_last)
    losses = -(shares * classes_last).sum(-1)
    return Unreduced("cross entropy", losses, losses.abs() + shares.sum(-1).abs() * classes, least(shares))


def least(shares: Tensor) -> Tensor:
    """Least of -sum_c a[c] log p[c] over probabilities p: at p = a / sum(a). NaN where one is negative: no bound."""
    mass = shares.sum(-1)
    return times_log(mass) - times_log(shares).sum(-1)


def _class_dimension(logs: Tensor) -> int:
    return 0 if logs.dim() == 1 else 1


def _weight(weight: Tensor | None, classes: int, like: Tensor) -> Tensor:
    if weight is None:
        return torch.ones(classes, dtype=torch.float64, device=like.device)
    return wide(weight).to(like.device)


def _positive(logs: Tensor, classes: int) -> Tensor:
    """Whether an entry exceeds zero. A log-softmax rounds its sum over the classes: that much is no excess."""
    if not logs.numel():
        return torch.zeros((), dtype=torch.bool, device=logs.device)
    return logs.detach().amax() > epsilon(logs) * max(classes, 8)
