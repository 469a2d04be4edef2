"""What the instruments share: waiting for their step, leaving one result, and ending the run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.asked import InstrumentResult
from weaklink.collector.measuring.result import missing
from weaklink.collector.stopping import StopRun, leave
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import BackwardSample, StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Waiting(Part):
    """An instrument of one step. Subclasses say what they do when its window opens, and call `answer` once.

    Args:
        watcher: Of the rerun.
        name: The instrument's.
        step: The optimizer step, from 1. Its window begins where the step before it ended.
        path: Where the result goes.
    """

    def __init__(self, watcher: Watcher, name: str, step: int, path: Path) -> None:
        super().__init__(watcher)
        self.name, self.step = name, step
        self._path = path
        self._answered = False
        self._stops = 0
        self.open = False
        # Whether the window has had a backward.
        self.seen = False

    @abstractmethod
    def begin(self) -> None:
        """The window of the step opens."""

    @abstractmethod
    def over(self) -> InstrumentResult:
        """The script ended before the instrument had answered: what it has, or why nothing."""

    def install(self) -> None:
        if self.step <= 1:
            self._begin()

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        if self.tape.steps + 1 == self.step and not self.open:
            self._begin()
        elif self.open and not self.seen:
            self.step = self.tape.steps + 1  # that one had no backward of its own: another optimizer's second half

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        if self._answered:
            self.stop()
        self.seen = self.seen or self.open

    def finish(self) -> None:
        """The script is over, or was stopped."""
        if not self._answered and not self.open:
            steps = self.tape.steps
            reason = f"the run ended after {steps} step{'s' * (steps != 1)}, before step {self.step} began"
            self._write(missing(self.name, self.step, reason))
        elif not self._answered:
            self._write(self.measured(self.over))

    def answer(self, measure: Callable[[], InstrumentResult]) -> None:
        """Measure, write the result, and end the run. An instrument that raises says so."""
        if not self._answered:
            self._write(self.measured(measure))
        self.stop()

    def stop(self) -> NoReturn:
        """End the script; again where it swallowed that, and at last without asking it."""
        self._stops += 1
        if self._stops > 3:
            leave(0)
        raise StopRun("stopped", f"stopped by the instrument at step {self.step}")

    def measured(self, measure: Callable[[], InstrumentResult]) -> InstrumentResult:
        """The result, with everything of ours unseen by the watcher."""
        try:
            with self.watcher.looking_away():
                return measure()
        except Exception as error:  # the user's model or loss, called in another way than they are made for
            return missing(self.name, self.step, f"it raised {type(error).__name__}: {str(error)[:200]}")

    def _begin(self) -> None:
        self.open = True
        self.begin()

    def _write(self, result: InstrumentResult) -> None:
        self._answered = True
        self._path.write_text(result.model_dump_json(), encoding="utf-8")
