"""The objective of a training step as a function of the model's outputs, found in the graph of its loss.

A loss that torch ships keeps its scores and its targets in the graph. Where those scores are the outputs of the model,
in one of a few arrangements, the same loss can be computed of other outputs: of another mode, of other weights.
Whether they are is a comparison of values, not a guess.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.watching.composites import ignored_index, match
from weaklink.collector.watching.nodes import feeding, name_of

# Losses stand close to the root of the graph.
DEPTH = 12

# How outputs become the scores of a loss: closed list, in the order in which they are tried.
ARRANGEMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as they are": lambda outputs: outputs,
    "classes second": lambda outputs: outputs.movedim(-1, 1),
    "places exchanged": lambda outputs: outputs.transpose(0, 1),
    "without the last position": lambda outputs: outputs[:, :-1],
    "without the last step": lambda outputs: outputs[:-1],
    "last position": lambda outputs: outputs[:, -1],
    "last step": lambda outputs: outputs[-1],
}


@dataclass
class Objective:
    """One loss of torch's own, of the model's outputs.

    Attributes:
        kind: cross entropy | negative log-likelihood | mean squared error | binary cross entropy, ... with logits
        position: Which of the model's floating-point outputs it takes.
        arrangement: Key of `ARRANGEMENTS`.
        shape: Shape of the scores.
        targets: What they are compared with.
        weight: Weights of the classes, or of the entries.
        ignored: Class index that is left out.
    """

    kind: str
    position: int
    arrangement: str
    shape: tuple[int, ...]
    targets: Tensor
    weight: Tensor | None = None
    ignored: int = -100

    def scores(self, outputs: Sequence[Tensor]) -> Tensor:
        """The scores in a model's floating-point outputs.

        Raises:
            RuntimeError: The outputs are of another shape.
        """
        return ARRANGEMENTS[self.arrangement](outputs[self.position]).reshape(self.shape).float()

    def loss(self, outputs: Sequence[Tensor]) -> Tensor:
        """The loss of these outputs, its mean over all targets."""
        scores, targets = self.scores(outputs), self.targets
        if self.kind == "cross entropy":
            return functional.cross_entropy(scores, targets, weight=self.weight, ignore_index=self.ignored)
        if self.kind == "negative log-likelihood":
            return functional.nll_loss(scores, targets, weight=self.weight, ignore_index=self.ignored)
        if self.kind == "mean squared error":
            return functional.mse_loss(scores, targets.float())
        if self.kind == "binary cross entropy":
            return functional.binary_cross_entropy(scores, targets.float())
        return functional.binary_cross_entropy_with_logits(scores, targets.float())

    def constant(self) -> float:
        """The least loss of outputs that are the same for every example: what a model reaches that sees no input."""
        with torch.no_grad():
            if self.kind in ("cross entropy", "negative log-likelihood"):
                return self._constant_of_classes()
            # One value a column where the targets have columns, one for all where the entries are the examples.
            targets = self.targets.double()
            mean = targets.mean(dim=0, keepdim=True)
            if self.kind == "mean squared error":
                return float(((targets - mean) ** 2).mean())
            return float(functional.binary_cross_entropy(mean.expand_as(targets).clamp(0, 1), targets))

    def _constant_of_classes(self) -> float:
        classes = 1 if len(self.shape) > 1 else 0
        if self.targets.is_floating_point():
            # (N, C, ...): the mean distribution against each.
            rows = self.targets.double().movedim(classes, -1).flatten(0, -2)
            mean = rows.mean(dim=0)
            return float(-(mean * mean.clamp_min(1e-300).log()).sum())
        kept = self.targets[self.targets != self.ignored].flatten()
        counts = torch.bincount(kept, minlength=self.shape[classes]).double()
        if self.weight is not None:
            counts = counts * self.weight.double()
        shares = counts / counts.sum()
        return float(-(shares * shares.clamp_min(1e-300).log()).sum())


def find_objective(losses: Sequence[Tensor], outputs: Sequence[Tensor]) -> Objective | None:
    """The first loss in the graph that takes these outputs; None where there is none that is recognised.

    Args:
        losses: What backward is about to be called on. Their saved tensors must be readable.
        outputs: The model's floating-point outputs, detached.
    """
    with torch.no_grad():
        for loss in losses:
            for node in _near(loss.grad_fn):
                if (found := _read(node, outputs)) is not None:
                    return found
    return None


def _near(root: Any) -> list[Any]:
    if root is None:
        return []
    found: list[Any] = []
    queue, seen = deque([(root, 0)]), {root}
    while queue:
        node, depth = queue.popleft()
        found.append(node)
        if depth == DEPTH:
            continue
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append((following, depth + 1))
    return found


def _read(node: Any, outputs: Sequence[Tensor]) -> Objective | None:
    try:
        return _objective(node, outputs)
    except (RuntimeError, AttributeError, IndexError, ValueError, TypeError):
        return None  # a saved tensor that was freed or changed in place


def _objective(node: Any, outputs: Sequence[Tensor]) -> Objective | None:
    name = name_of(node)
    if name in ("NllLossBackward0", "NllLoss2DBackward0"):
        source = feeding(node)
        softmax = name_of(source) == "LogSoftmaxBackward0"
        # The nodes of a graph that are trained on may be picked after it: then the scores are not the model's.
        softmax = softmax and source._saved_result.shape == node._saved_self.shape
        logs = source._saved_result if softmax else node._saved_self
        options: dict[str, Any] = {"weight": node._saved_weight, "ignored": ignored_index(node)}
        if softmax and (raw := _placed(outputs, logs, scores=True)) is not None:
            return _made("cross entropy", raw, logs, _targets_like(node._saved_target, logs), options)
        placed = _placed(outputs, logs)
        kind = "negative log-likelihood"
        return _made(kind, placed, logs, _targets_like(node._saved_target, logs), options) if placed else None
    kinds = {
        "MseLossBackward0": "mean squared error",
        "BinaryCrossEntropyBackward0": "binary cross entropy",
        "BinaryCrossEntropyWithLogitsBackward0": "binary cross entropy with logits",
    }
    if name in kinds:
        values = node._saved_self
        placed = _placed(outputs, values)
        return _made(kinds[name], placed, values, node._saved_target.expand_as(values), {}) if placed else None
    composite = match(node)
    if composite is None or composite.kind != "cross entropy":
        return None
    logs = composite.log_softmax._saved_result
    placed = _placed(outputs, logs, scores=True)
    if placed is None:
        return None
    ignored = ignored_index(composite.indexed) if composite.indexed is not None else -100
    options = {"weight": composite.weight, "ignored": ignored}
    return _made("cross entropy", placed, logs, _targets_like(composite.targets, logs), options)


def _targets_like(targets: Tensor, logs: Tensor) -> Tensor:
    """Class indices in the shape that belongs to these scores: torch flattens what has several positions."""
    wanted = (*logs.shape[:1], *logs.shape[2:])
    fits = (
        not targets.is_floating_point() and targets.shape != wanted and logs.numel() // logs.shape[1] == targets.numel()
    )
    return targets.reshape(wanted) if fits else targets


def _made(
    kind: str, placed: tuple[int, str] | None, scores: Tensor, targets: Tensor, options: dict[str, Any]
) -> Objective | None:
    if placed is None:
        return None
    weight = options.get("weight")
    return Objective(
        kind,
        *placed,
        tuple(scores.shape),
        targets.detach().clone(),
        weight.detach().clone().float() if isinstance(weight, Tensor) else None,
        int(options.get("ignored", -100)),
    )


def _placed(outputs: Sequence[Tensor], values: Tensor, scores: bool = False) -> tuple[int, str] | None:
    """Which output, in which arrangement, these values are. `scores`: they are its logarithms after a softmax."""
    for position, output in enumerate(outputs):
        if not output.dim():
            continue
        for name, arrange in ARRANGEMENTS.items():
            try:
                arranged = arrange(output).reshape(values.shape).float()
            except (RuntimeError, IndexError):
                continue  # another number of entries or of dimensions
            if scores:
                arranged = arranged.log_softmax(1 if values.dim() > 1 else 0)
            # Equal up to rounding: autocast and fused kernels round otherwise.
            close = torch.finfo(output.dtype).eps ** 0.5
            if torch.allclose(arranged, values.float(), rtol=close, atol=close):
                return position, name
    return None
