"""What `torch.nn.functional.kl_div` was given: log-probabilities and probabilities, or something else.

The function documents its input as log-probabilities and its target as probabilities, or as log-probabilities with
`log_target`. Recognised by torch's own frame on the stack, so that no formula that merely looks alike is accused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.losses.by_hand import wide
from weaklink.collector.watching.nodes import axis_of, before, feeding, name_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import called_in, site_of

_PROBABILITIES = {"SoftmaxBackward0": "a softmax", "SigmoidBackward0": "a sigmoid"}


@dataclass
class Divergence:
    """What is wrong with what a divergence was given, in words; None where nothing is known to be."""

    wrong: str | None
    site: Site | None


def read_divergence(node: Any, code: UserCode) -> Divergence | None:
    """The divergence whose element-wise part ends in this node; None for any other node."""
    name = name_of(node)
    if name not in ("SubBackward0", "MulBackward0") or not called_in(node, "kl_div"):
        return None
    site = site_of(node, code, "divergence called")
    if name == "SubBackward0" and name_of(product := before(node, 1)) == "MulBackward0":
        # target log target - target * input, the target without a history
        return Divergence(_wrong(product, product._saved_self), site) if before(node) is None else None
    if name == "MulBackward0" and name_of(difference := before(node, 1)) == "SubBackward0" and before(node) is None:
        # exp(target) * (target - input)
        shares = node._saved_self
        if isinstance(shares, Tensor) and shares.numel() and bool((shares >= 1).all() & (shares > 1).any()):
            return Divergence("targets that are no logarithms of probabilities are given as such (log_target)", site)
        return Divergence(_fed_by(difference, 1), site)
    return None


def _wrong(product: Any, targets: Any) -> str | None:
    if not isinstance(targets, Tensor) or not targets.numel():
        return None
    if bool((targets < 0).any()):
        return "targets below zero are given as probabilities, without log_target"
    return _fed_by(product, 1) or _along_another(before(product, 1), targets)


def _fed_by(node: Any, position: int) -> str | None:
    kind = _PROBABILITIES.get(name_of(feeding(node, position)))
    return None if kind is None else f"what {kind} gave is taken for log-probabilities"


def _along_another(source: Any, targets: Tensor) -> str | None:
    """Whether outputs and targets are distributions along different dimensions, beyond doubt."""
    if name_of(source) != "LogSoftmaxBackward0" or source._saved_result.shape != targets.shape:
        return None
    axis, values = axis_of(source, targets.dim()), wide(targets)
    unit = max(torch.finfo(targets.dtype).eps if targets.is_floating_point() else 0.0, torch.finfo(torch.float32).eps)
    along = [d for d in range(targets.dim()) if targets.shape[d] > 1
             and bool(((values.sum(d) - 1.0).abs() <= 8 * unit * targets.shape[d]).all())]  # fmt: skip
    if len(along) == 1 and along[0] != axis and targets.shape[axis] > 1:
        return f"the targets are distributions along dimension {along[0]}, the log-softmax runs along {axis}"
    return None
