"""Walking the autograd graph of a loss before backward consumes it.

Nothing runs: only `next_functions`, `variable` and, near the root, saved tensors of torch's own losses are read.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.watch.parameters import ParameterBook
from weaklink.collector.watch.summaries import loss_sample
from weaklink.collector.watch.tape import GraphSample, LossSample

NODE_LIMIT = 200_000
# Losses stand close to the root: a few sums and weights may come before them, a network may not.
LOSS_DEPTH = 12
# Operations that change shape or place and no value.
_SHAPE_ONLY = frozenset(
    {
        "ViewBackward0",
        "UnsafeViewBackward0",
        "ReshapeAliasBackward0",
        "TransposeBackward0",
        "TBackward0",
        "PermuteBackward0",
        "SqueezeBackward0",
        "SqueezeBackward1",
        "UnsqueezeBackward0",
        "CloneBackward0",
        "SelectBackward0",
        "SliceBackward0",
        "IndexBackward0",
        "ToCopyBackward0",
        "AliasBackward0",
        "ExpandBackward0",
    }
)


def walk(loss: Tensor, parameters: ParameterBook, read_saved: bool) -> GraphSample:
    """Breadth-first from the loss: the leaves it reaches, and what was fed to the losses on the way.

    Args:
        loss: The tensor backward is called on.
        parameters: Book to look leaves up in.
        read_saved: Whether saved tensors may be read. Never under packing hooks (activation checkpointing): unpacking
            there recomputes, and a second unpacking raises in the user's own backward.
    """
    sample = GraphSample(set(), 0, False, False, [])
    if loss.grad_fn is None:
        return sample
    if not read_saved:
        sample.saved_tensors_unread = "saved tensors are packed by hooks (activation checkpointing or offloading)"
    queue: deque[tuple[Any, int]] = deque([(loss.grad_fn, 0)])
    seen = {loss.grad_fn}
    while queue:
        node, depth = queue.popleft()
        sample.nodes += 1
        if sample.nodes >= NODE_LIMIT:
            sample.truncated = True
            break
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and _is(node, "torch::autograd::AccumulateGrad"):
            sample.leaves.add(parameters.entry(leaf).serial)
        if _is(node, "LogSoftmaxBackward0") and _fed_by(node, "SoftmaxBackward0"):
            sample.softmax_into_log_softmax = True
        if read_saved and depth <= LOSS_DEPTH and (found := _read_loss(node)) is not None:
            sample.losses.append(found)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append((following, depth + 1))
    return sample


def _is(node: Any, name: str) -> bool:
    # A custom Function's node is its `ctx`: the user may have put a `name` of their own there.
    return callable(node.name) and bool(node.name() == name)


def _fed_by(node: Any, name: str) -> bool:
    """Whether the node's own input comes from `name`, through operations that only change shape or place."""
    inner = node.next_functions[0][0] if node.next_functions else None
    for _ in range(8):
        if inner is None:
            return False
        if _is(inner, name):
            return True
        if not any(_is(inner, name) for name in _SHAPE_ONLY) or not inner.next_functions:
            return False
        inner = inner.next_functions[0][0]
    return False


def _read_loss(node: Any) -> LossSample | None:
    try:
        with torch.no_grad():
            return loss_sample(node) if callable(node.name) else None
    except (RuntimeError, AttributeError, IndexError):
        # A saved tensor that was freed or changed in place: the row will say "not measured".
        return None
