"""Where in a run something begins that was not there before: a first step, a place of backward, a thaw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.job import CLOSE_UP_STEPS
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import BackwardSample, StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# A search over settings makes thousands of optimizers; the first stages are the ones worth another look.
STAGES = 8


@dataclass
class StagesRecord:
    """The steps, counted from 1, at which a stage of the run begins; the first one is always 1."""

    steps: list[int] = field(default_factory=list)


class Stages(Part):
    """Two look-ups a step."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._places: set[tuple[str, int | None]] = set()
        self._stepped: set[int] = set()

    def install(self) -> None:
        """A part that is frozen or thawed while the run goes on begins a stage too."""
        self.watcher.wrap(Tensor, "requires_grad_", self._requires)

    def _requires(self, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        before = tensor.requires_grad
        result = original(tensor, *args, **kwargs)
        if self.tape.backwards and tensor.is_leaf and tensor.requires_grad != before:
            self._begin(self.tape.steps + 1)
        return result

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Backward at a line where there was none before: another loss, another loop."""
        site = self.tape.last_backward_site
        if site is not None and (site.file, site.line) not in self._places:
            self._places.add((site.file, site.line))
            self._begin(self.tape.steps + 1)

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """The first step of an optimizer: the one that is over now."""
        if entry.serial not in self._stepped:
            self._stepped.add(entry.serial)
            self._begin(self.tape.steps)

    def _begin(self, step: int) -> None:
        steps = self.tape.record(StagesRecord).steps
        # What changes within a few steps of another change, or at every step, is seen together with it.
        if len(steps) < STAGES and all(abs(step - known) >= CLOSE_UP_STEPS for known in steps):
            steps.append(step)
