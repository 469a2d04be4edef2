"""A step that changed what a pending backward still needs: torch counts the versions of a tensor and raises.

Torch names the tensor by its shape alone, and the line of the backward. Which step changed it is read off at that
moment: the operation that saved it is older than the step, the step took a parameter from the version that was saved to
a later one, and the operation hangs on that parameter (or, where it was frozen, on something of its shape without a
gradient).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.watching.graph import NODE_LIMIT
from weaklink.collector.watching.nodes import feeding
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# A graph that outlives more steps than this is not followed back to the first of them.
STEPS_KEPT = 64
# What torch says of a saved tensor that was changed: `[torch.FloatTensor [4, 1]], ... is at version 2; expected version
# 1 instead`. The wording has been the same since torch 1.0; another one leaves the exception unexplained.
_CHANGED = re.compile(
    r"\[[\w.]+ \[(?P<shape>[\d, ]*)\]\].* is at version (?P<now>\d+); expected version (?P<saved>\d+)"
)


@dataclass
class Pending:
    """A backward that a step had made impossible. `parameters` are serial numbers, `step` counts from 1.

    `carried`: the loss itself is younger than the step, and hangs on something from before it. Else the loss was there
    already, and the step came between its forward and its backward.
    """

    step: int
    step_site: Site | None
    backward_site: Site | None
    optimizer: int
    parameters: list[int]
    carried: bool


@dataclass
class PendingRecord:
    """The first such backward of a run, None where there was none. Plain data.

    `watched`: somebody looked. `unexplained`: torch refused a backward for a changed tensor that no step had changed.
    """

    found: Pending | None = None
    watched: bool = False
    unexplained: bool = False


@dataclass
class _Step:
    """Versions of everything that an optimizer holds, before and after one step, in the order of its groups."""

    number: int
    site: Site | None
    optimizer: OptimizerEntry  # by weak reference: a script that lets go of its optimizer has let go of it
    sequence: int
    before: list[int]
    after: list[int] = field(default_factory=list)


@dataclass
class _Changed:
    """A tensor that an operation saved and that is no longer what was saved."""

    node: Any
    shape: list[int]
    saved: int
    now: int


class PendingPart(Part):
    """Notes what each step changes, and says at an exception of torch's which step it was."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._steps: deque[_Step] = deque(maxlen=STEPS_KEPT)
        self.tape.record(PendingRecord).watched = True

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Versions before it; operations made so far have smaller sequence numbers than the one read here."""
        tape, sequence = self.tape, torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
        self._steps.append(_Step(tape.steps + 1, tape.last_step_site, entry, sequence, _versions(optimizer)))

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """Versions after it."""
        if self._steps and self._steps[-1].optimizer is entry:
            self._steps[-1].after = _versions(optimizer)

    def backward_raised(self, losses: list[Tensor], error: Exception) -> None:
        """Name the step, if this is torch's complaint about a changed tensor and a step is what changed it."""
        record = self.tape.record(PendingRecord)
        if record.found is not None or _CHANGED.search(str(error)) is None or not self.watcher.saved_tensors_readable:
            return
        for changed in _changed_tensors(losses):
            for step in self._steps:
                if held := self._taken_from(changed, step):
                    site = self.tape.last_backward_site
                    serials = [self.watcher.parameters.entry(tensor).serial for tensor in held]
                    carried = all(_made(loss) >= step.sequence for loss in losses)
                    record.found = Pending(step.number, step.site, site, step.optimizer.serial, serials, carried)
                    return
        record.unexplained = True

    def _taken_from(self, changed: _Changed, step: _Step) -> list[Tensor]:
        """The parameters that this step took from the saved version on, and that the operation has saved."""
        optimizer = step.optimizer.ref()
        held = _held(optimizer) if optimizer is not None else []
        if changed.node._sequence_nr() >= step.sequence or not len(held) == len(step.before) == len(step.after):
            return []
        crossed = [
            tensor
            for tensor, before, after in zip(held, step.before, step.after, strict=True)
            if before == changed.saved < after <= tensor._version == changed.now
        ]
        inputs = [feeding(changed.node, number) for number in range(len(changed.node.next_functions))]
        leaves = [getattr(node, "variable", None) for node in inputs]
        hanging = [tensor for tensor in crossed if any(tensor is leaf for leaf in leaves)]
        # A linear layer hangs on its bias too, which it does not keep.
        alike = [t for t in hanging or crossed if sorted(t.shape) == sorted(changed.shape)]
        return alike or hanging if hanging or None in inputs else []


def _made(loss: Tensor) -> int:
    """When the operation that gave the loss was recorded, in torch's own count; -1 for what none gave."""
    return -1 if loss.grad_fn is None else int(loss.grad_fn._sequence_nr())


def _held(optimizer: Optimizer) -> list[Tensor]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def _versions(optimizer: Optimizer) -> list[int]:
    return [tensor._version for group in optimizer.param_groups for tensor in group["params"]]


def _changed_tensors(losses: list[Tensor]) -> Iterator[_Changed]:
    """Every saved tensor below these losses that torch refuses to give out because it was changed since."""
    queue = deque(loss.grad_fn for loss in losses if loss.grad_fn is not None)
    seen = set(queue)
    while queue and len(seen) < NODE_LIMIT:
        node = queue.popleft()
        yield from _refused(node)
        following = [inner for inner, _ in node.next_functions if inner is not None and inner not in seen]
        seen.update(following)
        queue.extend(following)


def _refused(node: Any) -> Iterator[_Changed]:
    for name in dir(node):
        if not name.startswith("_saved") and name != "saved_tensors":
            continue
        try:
            getattr(node, name)
        except RuntimeError as error:
            if (said := _CHANGED.search(str(error))) is not None:
                shape = [int(size) for size in said["shape"].split(",") if size.strip()]
                yield _Changed(node, shape, int(said["saved"]), int(said["now"]))
