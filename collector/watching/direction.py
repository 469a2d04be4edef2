"""Whether an optimizer's first step went down the gradient that it was given, or up; and where one's own writes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import StepSample
from weaklink.collector.watching.writes import WriteFinder

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


@dataclass
class DirectionRecord:
    """By optimizer, the inner product of its first sampled step's movement and gradient.

    `writes`: the lines of an optimizer of the user's own that move parameters, where its first step went up.
    """

    along: dict[int, float] = field(default_factory=dict)
    writes: list[Site] = field(default_factory=list)


class DirectionPart(Part):
    """Keeps what the count of still entries measured on its way; watches a second step of a strange optimizer."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.seen = self.tape.record(DirectionRecord)
        self._finder = WriteFinder(watcher.code, self.seen.writes, "parameters moved")
        self._searched: set[int] = set()

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Look for the line where the first step of an optimizer of the user's own went up."""
        if self.seen.along.get(entry.serial, 0.0) > 0.0 and entry.serial not in self._searched:
            self._searched.add(entry.serial)
            if self._is_users(optimizer):
                places = {
                    t.data_ptr() for group in optimizer.param_groups for t in group["params"] if isinstance(t, Tensor)
                }
                self._finder.begin(lambda tensor: _place(tensor) in places)

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """The first sampled step of each optimizer is the one that was counted."""
        self._finder.end()
        along = self.watcher.movement.along
        if sample is not None and sample.still_entries is not None and along is not None:
            self.seen.along.setdefault(entry.serial, along)

    def finish(self) -> None:
        """A step that raised did not end."""
        self._finder.end()

    def _is_users(self, optimizer: Optimizer) -> bool:
        try:
            return self.watcher.code.relative(inspect.getfile(type(optimizer))) is not None
        except (TypeError, OSError):
            return False  # made in a console


def _place(tensor: Tensor) -> int | None:
    """Where its first entry lies: `p.data` is another object there. None where it lies nowhere."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return None
