"""The targets of a loss, read off its graph before backward consumes it."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.watching.pairs import host_copy
from weaklink.collector.watching.summaries import targets_of

# Nodes between backward's tensor and the loss that keeps targets: sums, weights and means, no network.
NODE_LIMIT = 48


def target_of(loss: Tensor) -> Tensor | None:
    """The targets that the first of torch's losses below this scalar keeps; None where there is none nearby.

    Never to be called under packing hooks: unpacking recomputes there.
    """
    if loss.grad_fn is None:
        return None
    queue: deque[Any] = deque([loss.grad_fn])
    seen = {loss.grad_fn}
    while queue and len(seen) < NODE_LIMIT:
        node = queue.popleft()
        if (found := _saved(node)) is not None:
            return found
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return None


def _saved(node: Any) -> Tensor | None:
    try:
        with torch.no_grad():
            found = targets_of(node)
    except (RuntimeError, AttributeError, IndexError, ValueError):  # freed, or changed in place
        return None
    return found.detach() if found is not None and not found.is_meta else None


def rows_of_target(target: Tensor | None, rows: int, kept: int) -> Tensor | None:
    """A copy of the targets of the first `kept` of `rows` rows; None where they are no rows of that number.

    Targets that were flattened over positions, (rows * positions,), come back as (rows, positions). Where outputs of
    (rows, 1) met targets of (rows,), torch kept them repeated: they come back as they were.
    """
    if target is None or not target.numel() or target.layout != torch.strided:
        return None
    for dimension, (length, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if stride == 0 and length > 1:
            target = target.narrow(dimension, 0, 1)
    if target.dim() and len(target) == rows:
        return host_copy(target, kept)
    return host_copy(target.reshape(rows, -1), kept) if target.numel() % rows == 0 else None
