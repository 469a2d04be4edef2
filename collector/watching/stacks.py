"""Where in the user's code an operation of the graph was called.

torch itself can note the Python stack with every node that it makes (`torch.autograd.set_detect_anomaly`, without its
check for NaN): it does so under our watch in the first window of each optimizer and when a part asks, and at no other
time, since a stack costs some hundred microseconds an operation. Nothing else changes: same nodes, same numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.tape import BackwardSample, StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# torch's key in a node's metadata: the lines of `traceback.format_stack`.
_STACK = "traceback_"
_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
# An accumulation window may hold hundreds of backward calls: the first ones show the same lines as the others.
BACKWARDS_PER_WINDOW = 4
# Windows at the start of a run, one an optimizer, in which stacks are noted.
FIRST_WINDOWS = 4


@dataclass(frozen=True)
class Frame:
    """One frame of the user's on the stack of an operation."""

    file: str
    line: int
    function: str

    def site(self, what: str) -> Site:
        return Site(file=self.file, line=self.line, what=what)


def frames_of(node: Any, code: UserCode) -> list[Frame]:
    """The user's frames that led to an operation, innermost first; empty where no stack was noted."""
    lines = getattr(node, "metadata", None)
    stack = lines.get(_STACK) if isinstance(lines, dict) else None
    found: list[Frame] = []
    for text in reversed(stack or []):
        match = _FRAME.match(str(text))
        name = code.relative(match["file"]) if match is not None else None
        if match is not None and name is not None:
            found.append(Frame(name, int(match["line"]), match["function"].strip()))
    return found


def called_in(node: Any, function: str) -> bool:
    """Whether `torch.nn.functional` itself called the operation, in the function of that name."""
    lines = getattr(node, "metadata", None)
    stack = lines.get(_STACK) if isinstance(lines, dict) else None
    match = _FRAME.match(str(stack[-1])) if stack else None
    return match is not None and match["file"] == functional.__file__ and match["function"].strip() == function


def site_of(node: Any, code: UserCode | None, what: str) -> Site | None:
    """The innermost line of the user's that called an operation; None where no stack was noted."""
    frames = frames_of(node, code) if code is not None else []
    return frames[0].site(what) if frames else None


class OperationStacks(Part):
    """Has torch note stacks in the windows in which they are wanted, and never during backward."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._wanted = False
        self._wanted_next = False
        self._on = False
        self._backwards = 0
        self._seen: set[int] = set()

    def install(self) -> None:
        """Begin with the first window."""
        # Another watcher's subject, or a live session: its global state is not ours to switch.
        self._wanted = not self.watcher.settings.in_process
        self._switch(self._wanted)

    def want_next(self) -> None:
        """Note stacks, and sample, in the next window."""
        self._wanted_next = not self.watcher.settings.in_process
        self.watcher.sample_next()

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Backward makes nodes too (checkpoints, second derivatives): those are nobody's line."""
        if self._on:
            self._switch(False)

    def backward_ended(self, sample: BackwardSample | None) -> None:
        """Go on until enough of the window was seen."""
        if self._wanted:
            self._backwards += 1
            self._switch(self._backwards < BACKWARDS_PER_WINDOW)

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """The window is over; the next one is of interest where another optimizer has yet to step."""
        if not self._wanted and not self._wanted_next:
            return
        self._seen.add(entry.serial)
        unseen = {known.serial for known, _ in self.watcher.optimizers.alive()} - self._seen
        self._wanted = self._wanted_next or (bool(unseen) and self.tape.steps < FIRST_WINDOWS)
        self._wanted_next, self._backwards = False, 0
        self._switch(self._wanted)

    def finish(self) -> None:
        """Leave torch as it was."""
        self._switch(False)

    def _switch(self, on: bool) -> None:
        """A mode that the script itself has switched on stays: it looks for NaN, ours does not."""
        if on == self._on or (torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()):
            return
        self._on = on
        torch.autograd.set_detect_anomaly(on, check_nan=not on)
