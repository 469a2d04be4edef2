"""The part of a graph that is the loss: what its operations, shapes and saved operands say, whoever wrote it.

Read in sampled steps, before backward consumes the graph: next functions, the shapes that every node keeps, and tensors
that torch saved anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.watching.alignment import Alignment, read_alignment
from weaklink.collector.watching.crossings import Crossing, find_crossing, find_meeting
from weaklink.collector.watching.divergence_inputs import Divergence, read_divergence
from weaklink.collector.watching.exchanges import Exchange, find_exchange
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.sequence_targets import SequenceTargets, read_sequence_targets
from weaklink.collector.watching.tape import BackwardSample
from weaklink.collector.watching.term_scales import TermScales, read_term_scales

if TYPE_CHECKING:
    pass

# A loss stands near the root. A network of that many operations may follow, and is walked in vain.
NODES_NEAR = 600
SAMPLES_LIMIT = 64


@dataclass
class LossFindings:
    """What was read, in order; each with its step."""

    divergences: list[tuple[int, Divergence]] = field(default_factory=list)
    sequences: list[tuple[int, SequenceTargets]] = field(default_factory=list)
    crossings: list[tuple[int, Crossing]] = field(default_factory=list)
    # Shapes in which a loss written by hand meets given numbers entry by entry.
    meetings: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    exchanges: list[tuple[int, Exchange]] = field(default_factory=list)
    scales: list[tuple[int, TermScales]] = field(default_factory=list)
    # None where a sampled loss is no such loss.
    alignments: list[tuple[int, Alignment | None]] = field(default_factory=list)


class LossGraph(Part):
    """Reads the findings off each sampled loss. Lines are known where stacks were noted: later samples repeat them."""

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Read the graph of each loss of this backward."""
        if sample is None or sample.graph is None or sample.graph.saved_tensors_unread is not None:
            return
        rows = {s.shape[0] for f in self.tape.windows[-1].forwards for s in f.inputs if s.shape}
        for loss in losses[:4]:
            if loss.grad_fn is not None and loss.numel() == 1:
                with torch.no_grad():
                    self.watcher.guarded(self._read)(loss.grad_fn, rows)

    def _read(self, root: Any, rows: set[int]) -> None:
        record, step, code = self.tape.record(LossFindings), self.tape.steps + 1, self.watcher.code
        if max(len(record.alignments), len(record.divergences), len(record.sequences)) >= SAMPLES_LIMIT:
            return
        nodes = _near(root)
        _extend(record.divergences, step, lambda node: read_divergence(node, code), nodes)
        _extend(record.sequences, step, lambda node: read_sequence_targets(node, code), nodes)
        if not record.exchanges:
            _extend(record.exchanges, step, lambda node: find_exchange(node, code), nodes)
        if not record.crossings:
            _extend(record.crossings, step, lambda node: find_crossing(node, nodes, rows, code), nodes)
        if not record.meetings:
            _extend(record.meetings, step, lambda node: find_meeting(node, nodes, rows), nodes)
        if (scales := read_term_scales(root, code)) is not None:
            record.scales.append((step, scales))
        record.alignments.append((step, read_alignment(root, self.watcher.parameters, code)))


def _extend(found: list[Any], step: int, read: Callable[[Any], Any], nodes: dict[Any, Any]) -> None:
    for node in nodes:
        try:
            one = read(node)
        except RuntimeError:  # a saved tensor that was changed in place since
            continue
        if one is not None:
            found.append((step, one))


def _near(root: Any) -> dict[Any, Any]:
    """The nodes nearest to the root, each with the node above it."""
    found: dict[Any, Any] = {root: None}
    queue = deque([root])
    while queue and len(found) < NODES_NEAR:
        node = queue.popleft()
        for following, _ in node.next_functions:
            if following is not None and following not in found:
                found[following] = node
                queue.append(following)
    return found
