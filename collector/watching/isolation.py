"""From which backward call the gradients came that each optimizer step consumed.

Each backward call's own gradient is told from what was there before it; a gradient that is cleared before a step uses
it has done no harm (the generator's loss reaches the critic, whose gradients are cleared before its own backward).
A line of the script that calls backward stands for one objective: micro-batches come from one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.tensors import differ, exactly_zero
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import BackwardSample, StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# The place of a backward call that no line of the user's own makes: a factory's loop is ours.
LIBRARY = "a library's loop"
# So often the step after a change in what an optimizer holds is sampled: a script may build one at every step.
CHANGES_SAMPLED = 12
# Gradients that were there before a backward are copied up to here, to tell what it added.
COPIED_BYTES = 256 * 1024 * 1024


@dataclass
class Feed:
    """All sampled backward calls of one line: which parameters they gave a gradient that is not zero."""

    site: Site | None
    fed: set[int] = field(default_factory=set)
    calls: int = 0


@dataclass
class Use:
    """What one optimizer's steps took of the gradients of one backward line."""

    step: int
    site: Site | None
    parameters: set[int] = field(default_factory=set)


@dataclass
class IsolationRecord:
    """Feeds by place; uses by optimizer serial number and place of the backward call. Plain data."""

    feeds: dict[str, Feed] = field(default_factory=dict)
    uses: dict[tuple[int, str], Use] = field(default_factory=dict)


class IsolationPart(Part):
    """Follows each gradient from its backward calls to the step that consumes it, in sampled steps."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._asked = 0
        self._holds: dict[int, int] = {}
        # By parameter: places of the backward calls whose gradient is in `.grad` now.
        self._origin: dict[int, set[str]] = {}
        # The gradient object as the last backward left it: another one was put there by hand.
        self._object: dict[int, int] = {}
        self._before: dict[int, tuple[int, int]] = {}
        self._copies: dict[int, Tensor] = {}
        self._left: set[int] = set()
        self._unseen = False
        self._stepping: int | None = None
        self._within: set[int] = set()

    @property
    def _record(self) -> IsolationRecord:
        return self.tape.record(IsolationRecord)

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Forget what was cleared, and note how each gradient looks before this call."""
        if sample is None:
            self._unseen = True  # gradients that are there later came from calls nobody has looked at
            return
        self._left = set(sample.left_over)
        self._before = {}
        for serial, parameter in self._leaves():
            gradient = parameter.grad
            if gradient is None or (parameter.requires_grad and serial not in self._left):
                self._origin.pop(serial, None)
            elif self._unseen or self._object.get(serial) != id(gradient):
                self._origin[serial] = set()
                self._object.pop(serial, None)
            if gradient is not None:
                self._before[serial] = (id(gradient), gradient._version)
        self._unseen = False
        if self.watcher.declared.objectives:
            self._copy_left_over()

    def _copy_left_over(self) -> None:
        budget = COPIED_BYTES
        for serial, parameter in self._leaves():
            gradient = parameter.grad if serial in self._left else None
            if gradient is not None and gradient.layout == torch.strided:
                budget -= gradient.numel() * gradient.element_size()
                if budget >= 0:
                    with torch.no_grad():  # and not `detach`, which is watched
                        self._copies[serial] = gradient.clone()

    def backward_ended(self, sample: BackwardSample | None) -> None:
        """Whose gradient this call has changed."""
        if sample is None:
            return
        place = LIBRARY if sample.site is None else sample.site.place
        feed = self._record.feeds.setdefault(place, Feed(sample.site))
        feed.calls += 1
        changed: list[int] = []
        for serial, parameter in self._leaves():
            gradient = parameter.grad
            if gradient is None or self._before.get(serial) == (id(gradient), gradient._version):
                continue
            self._object[serial] = id(gradient)
            changed.append(serial)
        for serial in self._not_zero(changed, sample):
            feed.fed.add(serial)
            self._origin.setdefault(serial, set()).add(place)
            if self._stepping is not None:
                self._within.add(serial)
        self._copies = {}

    def _not_zero(self, changed: list[int], sample: BackwardSample) -> list[int]:
        """Those to which the call added something: a loss times zero feeds nobody."""
        copied = [serial for serial in changed if serial in self._copies]
        pairs = [(self._gradient(serial), self._copies[serial]) for serial in copied]
        known = [(serial, now, then) for serial, (now, then) in zip(copied, pairs, strict=True) if now is not None]
        with torch.no_grad():
            has_changed = differ([(now, then) for _, now, then in known])
        nothing = {serial for (serial, _, _), moved in zip(known, has_changed, strict=True) if not moved}
        fresh = {s for s in changed if s not in self._left and sample.gradients.get(s, ("nonzero", None))[0] == "zero"}
        return [serial for serial in changed if serial not in nothing | fresh]

    def _gradient(self, serial: int) -> Tensor | None:
        parameter = self.watcher.parameters.entries[serial].ref()
        return None if parameter is None else parameter.grad

    def _leaves(self) -> list[tuple[int, Tensor]]:
        return [(entry.serial, tensor) for entry, tensor in self.watcher.parameters.alive() if tensor.is_leaf]

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Gradients that are there now are what the step consumes."""
        self._stepping, self._within = entry.serial, set()
        self._ask_for_samples(entry)
        if self.watcher.sampling and not self._unseen:
            self._consumed(entry, set(entry.held))

    def _ask_for_samples(self, entry: OptimizerEntry) -> None:
        """An optimizer that is new, or was given more, belongs to a stage that no sampled step may have seen."""
        changed = self._holds.get(entry.serial) != len(entry.held)
        self._holds[entry.serial] = len(entry.held)
        if (changed or entry.steps == 1) and self.tape.steps > 1 and self._asked < CHANGES_SAMPLED:
            self._asked += 1
            self.watcher.sample_next()

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """A closure calls backward inside the step: what came then is consumed too."""
        if sample is not None and self._within:
            self._consumed(entry, self._within & set(entry.held), self.tape.steps)
        self._stepping, self._within = None, set()

    def _consumed(self, entry: OptimizerEntry, serials: set[int], step: int | None = None) -> None:
        there = [(serial, self._gradient(serial)) for serial in serials if self._origin.get(serial)]
        mine = [(serial, gradient) for serial, gradient in there if gradient is not None and self._is_ours(serial)]
        with torch.no_grad():
            cleared = exactly_zero([gradient for _, gradient in mine]) if self.watcher.declared.objectives else []
        nothing = {serial for (serial, _), zero in zip(mine, cleared, strict=False) if zero}
        for serial, _ in mine:
            for place in self._origin[serial] if serial not in nothing else ():
                made = Use(step or self.tape.steps + 1, self.tape.last_step_site)
                self._record.uses.setdefault((entry.serial, place), made).parameters.add(serial)

    def _is_ours(self, serial: int) -> bool:
        parameter = self.watcher.parameters.entries[serial].ref()
        return parameter is not None and self._object.get(serial) == id(parameter.grad)
