"""The step that is taken again: its losses, the optimizers that consumed them, and the state before they moved.

Which optimizers a step belongs to shows only once they step: with its state kept, the run goes on until the next
forward, and is then put back.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.asked import InstrumentResult
from weaklink.collector.looking.batches import TrainingBatch, copied, floating
from weaklink.collector.looking.objective import Objective, find_objective
from weaklink.collector.measuring.part import Waiting
from weaklink.collector.measuring.recorder import Entry, Recorder, Replay
from weaklink.collector.measuring.result import missing
from weaklink.collector.preserve import preserved
from weaklink.collector.watching.context import inside_a_step
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.tape import BackwardSample

# Backward calls of one step: more are an accumulation over so many batches that nobody fits them again.
BACKWARDS = 64


@dataclass
class Step:
    """One step of the script's.

    Attributes:
        losses: What backward was called on, unscaled, while it was being recorded.
        values: What they were.
        objective: Of a single loss of torch's own, of the outputs of the model that `entry` calls.
        optimizers: Those that stepped with it.
    """

    losses: list[Tensor] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    objective: Objective | None = None
    entry: Entry | None = None
    optimizers: list[Optimizer] = field(default_factory=list)


class StepPart(Waiting):
    """Records the step, waits until it is known who steps, puts everything back, and lets the subclass measure."""

    # Whether the step's first backward is enough.
    at_backward = False

    @abstractmethod
    def measure(self, step: Step, recorder: Recorder) -> InstrumentResult:
        """The figures. Nothing moved; the process is thrown away afterwards."""

    def install(self) -> None:
        self._unscaled: dict[int, tuple[Tensor, Tensor]] = {}
        self._taken = Step()
        self._stepping: Optimizer | None = None
        self._kept: ExitStack | None = None
        self.watcher.wrap(torch.amp.GradScaler, "scale", self._scale)
        super().install()

    def begin(self) -> None:
        self._recorder = Recorder(lambda: self.watcher.paused, self._settles)
        self._recorder.start()

    def _scale(self, original: Any, scaler: Any, outputs: Any, *args: Any) -> Any:
        result = original(scaler, outputs, *args)
        if isinstance(result, Tensor) and isinstance(outputs, Tensor):
            self._unscaled[id(result)] = (result, outputs)
        return result

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        super().backward_begins(losses, sample)
        if not self.open:
            return
        if self._taken.optimizers:
            self._conclude()
        for loss in losses:
            unscaled = self._unscaled.get(id(loss), (loss, loss))[1]
            if loss.numel() == 1 and len(self._taken.losses) < BACKWARDS:
                self._taken.losses.append(unscaled)
                self._taken.values.append(float(unscaled.detach()))
        self._find_objective(losses)
        if inside_a_step() and self._stepping is not None:  # a closure: nothing has moved, and who steps is known
            self._taken.optimizers = [self._stepping]
            self._conclude()
        # Without an optimizer, what moves the weights after the backward is not seen: now they still are as they were.
        if self.at_backward or not self.watcher.optimizers.alive():
            self._conclude()

    def _find_objective(self, losses: list[Tensor]) -> None:
        """Of a step with one loss; what the graph keeps can be read before the backward only."""
        taken = self._taken
        if len(taken.losses) != 1 or not self.watcher.saved_tensors_readable:
            return
        for entry in reversed(self._recorder.entries):
            if entry.streams is None:
                continue
            outputs = [tensor.detach() for tensor in floating(entry.result)[:4]]
            with self.watcher.looking_away():
                objective = find_objective(losses, outputs)
            if objective is not None:
                taken.objective, taken.entry = objective, entry
                return

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """The first of the step's optimizers: from here on something moves."""
        if self._answered:
            self.stop()
        self._stepping = optimizer
        if not self.open or not self._taken.losses:
            return
        if self._kept is None:
            alive = [each for _, each in self.watcher.optimizers.alive()]
            models = [e.function for e in self._recorder.entries if e.streams is not None]
            self._kept = ExitStack()
            self._kept.enter_context(preserved(models, alive))  # type: ignore[arg-type]
            self._recorder.active = False
        if not any(optimizer is known for known in self._taken.optimizers):
            self._taken.optimizers.append(optimizer)

    def _settles(self) -> None:
        """Told before a model's forward; after the step's optimizers it is the next step's."""
        if self._taken.optimizers:
            self._conclude()

    def _conclude(self) -> None:
        self.answer(self.over)

    def over(self) -> InstrumentResult:
        if self._kept is not None:
            self._kept.close()
        self._recorder.active = False
        if not self._taken.losses:
            return missing(self.name, self.step, f"no backward was called on a number for step {self.step}")
        if not self._taken.optimizers:
            # Without a step nothing says how many belong together.
            del self._taken.losses[1:], self._taken.values[1:]
        return self.measure(self._taken, self._recorder)

    def finish(self) -> None:
        super().finish()
        if self.open:
            self._recorder.end()


def replay_of(step: Step, recorder: Recorder) -> Replay:
    """The step's calls, once they have given the same loss again.

    Raises:
        NotReplayable: Says why they do not.
    """
    if recorder.too_many:
        raise NotReplayable("the step makes more operations than are kept")
    if len(step.losses) >= BACKWARDS:
        raise NotReplayable(f"the step calls backward {BACKWARDS} times or more")
    if not all(map(math.isfinite, step.values)):
        raise NotReplayable("the loss of that step is not finite")
    if not all(recorder.knows(loss) for loss in step.losses):
        raise NotReplayable(
            "the loss comes from something else than models and torch functions that can be recorded "
            "(a function of one's own with its own backward, a compiled region, another thread)"
        )
    replay = Replay(recorder, step.losses)
    if any(hasattr(m, "_orig_mod") or isinstance(m, torch.jit.ScriptModule) for m in replay.models):
        raise NotReplayable("the model is compiled")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise NotReplayable("the model talks to other processes")
    with torch.enable_grad():
        again = replay.loss(streams=True).detach()
    if replay.began_before:
        raise NotReplayable("the loss comes in part from a forward before the last step, which was not recorded")
    if replay.cut:
        raise NotReplayable("a part of the loss has a backward of its own (torch.autograd.Function), not recorded")
    if not same_number(float(again), sum(step.values), again.dtype):
        raise NotReplayable(
            f"the recorded operations, computed again, give {float(again):.6g} where the script had "
            f"{sum(step.values):.6g}: something else changes the loss (a number read off a tensor, a state of a module)"
        )
    return replay


class NotReplayable(Exception):
    """The step's loss cannot be computed again; says why."""


def few_rows(step: Step, rows: int) -> TrainingBatch | None:
    """The first rows of the step's batch, where the loss is one of torch's own and nothing else; None otherwise."""
    if step.objective is None or step.entry is None or len(step.losses) != 1:
        return None
    args, kwargs = copied(step.entry.args), copied(step.entry.kwargs)
    if args is None or kwargs is None:
        return None
    outputs = [tensor.detach() for tensor in floating(step.entry.result)]
    whole = step.objective.loss(outputs)
    batch = TrainingBatch(args, kwargs, step.objective)
    cut = batch.first_rows(rows)
    return cut if same_number(float(whole), step.values[0], whole.dtype) else None


def same_number(one: float, other: float, kind: torch.dtype) -> bool:
    """Whether they are one number up to rounding: fused kernels and autocast sum otherwise. NaN is like NaN."""
    if math.isnan(one) and math.isnan(other):
        return True
    close = float(torch.finfo(kind).eps) ** 0.5
    return one == other or abs(one - other) <= close * max(1.0, abs(one), abs(other))
