"""Losses that torch builds from several nodes: cross entropy with smoothing or probabilities, and the divergence.

Recognised by the nodes that torch's own code leaves, down to the log-softmax. A loss that a user wrote with the same
operations is the same loss: its targets are checked to be distributions, since a policy gradient looks alike.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.losses.by_hand import ByHand, reduce, wide
from weaklink.collector.losses.classes import ClassOptions, index_loss, probability_loss
from weaklink.collector.losses.elementwise import divergence
from weaklink.collector.watching.nodes import axis_of, before, feeding, name_of

_NLL = ("NllLossBackward0", "NllLoss2DBackward0")
REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


@dataclass
class Composite:
    """A recognised loss, while its tensors are there."""

    kind: str
    reduction: str
    log_softmax: Any
    targets: Tensor
    weight: Tensor | None = None
    smoothing: float = 0.0
    # The node that keeps class indices, of a smoothed cross entropy.
    indexed: Any = None

    def by_hand(self) -> ByHand | None:
        """The loss by hand from the saved log-probabilities."""
        logs = self.log_softmax._saved_result
        if self.kind != "cross entropy":
            return reduce(divergence(logs, self.targets, False), self.reduction, logs, self.targets)
        if self.indexed is None:
            # The formula has the classes where torch's own losses have them: second, or first of one dimension.
            axis, second = axis_of(self.log_softmax, logs.dim()), min(1, logs.dim() - 1)
            arranged = logs.movedim(axis, second), self.targets.movedim(axis, second)
            unreduced = probability_loss(*arranged, ClassOptions(self.weight))
        else:
            options = ClassOptions(self.weight, ignored_index(self.indexed), self.smoothing)
            unreduced = index_loss(self.indexed._saved_self, self.targets, options, self.kind)
        if unreduced is None:
            return None
        shapes = tuple(logs.shape), target_shape(logs, self.targets)
        return reduce(unreduced, self.reduction, logs, self.targets, shapes)


def match(node: Any) -> Composite | None:
    """The loss whose last operation is this node, or None."""
    name = name_of(node)
    if name == "AddBackward0":
        return _smoothed(node)
    if name.startswith("DivBackward") or name in ("NegBackward0", "SumBackward0", "MeanBackward0"):
        return _soft(node) or _divergence(node)
    return None


def parts_of(node: Any) -> set[Any]:
    """All nodes of a composite loss below its last one: each of them is no loss of its own."""
    if match(node) is None:
        return set()
    found: set[Any] = set()
    queue = deque([node])
    while queue and len(found) < 32:
        for following, _ in queue.popleft().next_functions:
            if following is not None and following not in found and name_of(following) != "LogSoftmaxBackward0":
                found.add(following)
                queue.append(following)
    return found


def ignored_index(node: Any) -> int:
    """The ignored class index of a negative log-likelihood node, which keeps it without its sign."""
    kept = int(node._saved_ignore_index)
    return kept - 2**64 if kept >= 2**63 else kept


def target_shape(logs: Tensor, targets: Tensor) -> tuple[int, ...]:
    """Shape of the targets as they were given: of class indices that of the outputs without the classes."""
    if targets.is_floating_point():
        return tuple(targets.shape)
    shape = tuple(logs.shape)
    return shape[:1] + shape[2:] if len(shape) > 1 else ()


def _smoothed(node: Any) -> Composite | None:
    """(1-s) * nll + s/C * sum over all classes, both from one log-softmax."""
    hard, spread = before(node, 0), before(node, 1)
    inner = feeding(hard)
    if name_of(inner) not in _NLL or node._saved_alpha != 1:
        return None
    share, rest, source = _factor(spread), _factor(hard), feeding(inner)
    if share is None or rest is None or name_of(source) != "LogSoftmaxBackward0" or not _leads_to(spread, source):
        return None
    classes = source._saved_result.shape[axis_of(source, source._saved_result.dim())]
    if not math.isclose(rest + share * classes, 1.0, rel_tol=1e-6):
        return None
    reduction = REDUCTIONS.get(int(inner._saved_reduction), "none")
    return Composite(
        "cross entropy", reduction, source, inner._saved_target, inner._saved_weight, share * classes, inner
    )  # fmt: skip


def _soft(node: Any) -> Composite | None:
    """-sum(logp * targets [* weight]), divided by the number of positions for the mean."""
    negated = before(node) if name_of(node).startswith("DivBackward") else node
    if name_of(negated) != "NegBackward0" or name_of(total := before(negated)) != "SumBackward0":
        return None
    product = before(total)
    if name_of(product) != "MulBackward0":
        return None
    weight = None
    if name_of(inner := before(product)) == "MulBackward0":
        weight, product = product._saved_other, inner
    source, targets = before(product), product._saved_other
    # Where the second factor learns as well it is no target: an entropy, for one, is p * log p.
    if name_of(source) != "LogSoftmaxBackward0" or targets is None or before(product, 1) is not None:
        return None
    logs = source._saved_result
    dimension = axis_of(source, logs.dim())
    if targets.shape != logs.shape or not _is_distribution(targets, dimension):
        return None
    if weight is not None and (weight.numel() != logs.shape[dimension] or weight.shape[dimension] != weight.numel()):
        return None
    if negated is not node and _divided_by(node) != logs.numel() / logs.shape[dimension]:
        return None
    reduction = "sum" if negated is node else "mean"
    return Composite("cross entropy", reduction, source, targets, None if weight is None else weight.flatten())


def _divergence(node: Any) -> Composite | None:
    """sum(t log t - t * logp), or with targets given as logarithms sum(t * (log t - logp))."""
    name, terms = name_of(node), before(node)
    reduction = "mean" if name == "MeanBackward0" else "sum"
    if name.startswith("DivBackward"):
        reduction, terms = "batchmean", before(terms) if name_of(terms) == "SumBackward0" else None
    # t log t minus t * logp, or t times log t minus logp: the subtraction stands outside or inside of the product.
    outer, inner = terms, before(terms, 1)
    product, difference = (inner, outer) if name_of(outer) == "SubBackward0" else (outer, inner)
    if name_of(product) != "MulBackward0" or name_of(difference) != "SubBackward0":
        return None
    if before(outer) is not None or before(inner) is not None or difference._saved_alpha != 1:
        return None  # targets that learn themselves, or a difference of something else
    source, targets = before(inner, 1), product._saved_self
    if name_of(source) != "LogSoftmaxBackward0" or targets is None:
        return None
    logs = source._saved_result
    if targets.shape != logs.shape or not _is_distribution(targets, axis_of(source, logs.dim())):
        return None
    if reduction == "batchmean" and _divided_by(node) != logs.shape[0]:
        return None
    return Composite("Kullback-Leibler divergence", reduction, source, targets)


def _factor(node: Any) -> float | None:
    """The number that a node multiplies by."""
    if not name_of(node).startswith("MulBackward"):
        return None
    return _number(getattr(node, "_saved_other", None))


def _divided_by(node: Any) -> float | None:
    return _number(getattr(node, "_saved_other", None))


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.dim() == 0 else None
    return float(value) if isinstance(value, (int, float)) else None


def _leads_to(node: Any, goal: Any) -> bool:
    """Whether a chain of first inputs comes to a node in a few steps."""
    for _ in range(10):
        if node is goal:
            return True
        if node is None:
            return False
        node = before(node)
    return False


def _is_distribution(shares: Tensor, dimension: int) -> bool:
    if not shares.is_floating_point() or not shares.numel():
        return False
    values = wide(shares)
    unit = max(torch.finfo(shares.dtype).eps, torch.finfo(torch.float32).eps)
    off = (values.sum(dimension) - 1.0).abs().amax()
    return bool((values.amin() >= 0) & (off <= 8 * unit * shares.shape[dimension]))
