"""Walking the autograd graph of a loss before backward consumes it.

Nothing runs: only `next_functions`, `variable` and, near the root, saved tensors of torch's own losses are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.watching.composites import parts_of
from weaklink.collector.watching.nodes import (
    SITE,
    axis_of,
    before,
    feeding,
    gives_raw_scores,
    is_gathered,
    makes_logarithms,
    may_take_densities,
    name_of,
)
from weaklink.collector.watching.parameters import ParameterBook
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of
from weaklink.collector.watching.summaries import loss_sample, targets_of
from weaklink.collector.watching.tape import GraphSample, LossSample

NODE_LIMIT = 200_000
# Losses stand close to the root: a few sums and weights may come before them, a network may not.
LOSS_DEPTH = 12


def walk(
    loss: Tensor,
    parameters: ParameterBook,
    read_saved: bool,
    on_targets: Callable[[Tensor], None] | None = None,
    code: UserCode | None = None,
) -> GraphSample:
    """Breadth-first from the loss: the leaves it reaches, and what was fed to the losses on the way.

    Args:
        loss: The tensor backward is called on.
        parameters: Book to look leaves up in.
        read_saved: Whether saved tensors may be read. Never under packing hooks (activation checkpointing): unpacking
            there recomputes, and a second unpacking raises in the user's own backward.
        on_targets: Told the targets of the first loss found, while they are there.
        code: Tells the user's frames, where stacks were noted with the nodes.
    """
    sample = GraphSample(set(), 0, False, False, [])
    if loss.grad_fn is None:
        return sample
    if not read_saved:
        sample.saved_tensors_unread = "saved tensors are packed by hooks (activation checkpointing or offloading)"
    queue: deque[tuple[Any, int]] = deque([(loss.grad_fn, 0)])
    parents: dict[Any, Any] = {loss.grad_fn: None}
    parts = set[Any]()
    while queue:
        node, depth = queue.popleft()
        sample.nodes += 1
        if sample.nodes >= NODE_LIMIT:
            sample.truncated = True
            break
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and name_of(node) == "torch::autograd::AccumulateGrad":
            sample.leaves.add(parameters.entry(leaf).serial)
        _note_feeding(node, sample, read_saved, code)
        sample.near_logarithm |= depth <= LOSS_DEPTH and makes_logarithms(node)
        if read_saved and depth <= LOSS_DEPTH and node not in parts and (found := _read_loss(node)) is not None:
            parts |= parts_of(node)
            if not (found.reduction == "none" and found.indexed and is_gathered(_path(node, parents))):
                found.site = site_of(node, code, f"{found.kind} called")
                sample.losses.append(found)
                if on_targets is not None and len(sample.losses) == 1 and (targets := targets_of(node)) is not None:
                    on_targets(targets)
        for following, _ in node.next_functions:
            if following is not None and following not in parents:
                parents[following] = node
                queue.append((following, depth + 1))
    return sample


def _path(node: Any, parents: dict[Any, Any]) -> list[str]:
    """Names of the nodes between the loss that backward is called on and this one."""
    names: list[str] = []
    while (node := parents[node]) is not None:
        names.append(name_of(node))
    return names


def leaves_of(root: Any, parameters: ParameterBook) -> set[int]:
    """Serial numbers of the leaves below a node of the graph."""
    found: set[int] = set()
    queue, seen = deque([root]), {root}
    while queue and len(seen) < NODE_LIMIT:
        node = queue.popleft()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and name_of(node) == "torch::autograd::AccumulateGrad":
            found.add(parameters.entry(leaf).serial)
        following = [inner for inner, _ in node.next_functions if inner is not None and inner not in seen]
        seen.update(following)
        queue.extend(following)
    return found


def _note_feeding(node: Any, sample: GraphSample, read_saved: bool, code: UserCode | None) -> None:
    """Pairs that are wrong, or worth a word, whatever the values: what feeds a log-softmax or a loss over scores."""
    name = name_of(node)
    if name == "LogSoftmaxBackward0":
        source = name_of(feeding(node))
        if source == "SoftmaxBackward0":
            across = read_saved and _across(node)
            called = feeding(node).metadata.get(SITE) or site_of(feeding(node), code, "softmax called")
            sample.softmax_site = sample.softmax_site or called
            sample.softmax_across |= across
            sample.softmax_into_log_softmax |= not across
        sample.log_softmax_into_log_softmax |= source == "LogSoftmaxBackward0"
    elif name == "BinaryCrossEntropyWithLogitsBackward0":
        sample.sigmoid_into_logits |= name_of(feeding(node)) == "SigmoidBackward0"
    elif name in ("NllLossBackward0", "NllLoss2DBackward0"):
        sample.raw_scores_into_likelihood |= gives_raw_scores(node)
        sample.near_logarithm |= may_take_densities(node)


def _across(log_softmax: Any) -> bool:
    """Whether the softmax right before a log-softmax runs along another dimension: no probabilities of its classes."""
    softmax = before(log_softmax)
    if name_of(softmax) != "SoftmaxBackward0":
        return False
    try:
        dimensions = log_softmax._saved_result.dim()
    except RuntimeError:  # freed
        return False
    return axis_of(softmax, dimensions) != axis_of(log_softmax, dimensions)


def _read_loss(node: Any) -> LossSample | None:
    try:
        with torch.no_grad():
            return loss_sample(node) if callable(node.name) else None
    except (RuntimeError, AttributeError, IndexError, ValueError):
        # A saved tensor that was freed or changed in place: the row will say "not measured".
        return None
