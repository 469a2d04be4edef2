"""`learning_rates` and `tiny_batch`: steps of the run's own optimizers on one batch, from one and the same state."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.asked import InstrumentResult
from weaklink.collector.evidence import Value
from weaklink.collector.looking.batches import floating, fresh
from weaklink.collector.looking.rates import declared_rate
from weaklink.collector.measuring.pinned import NotReplayable, Step, StepPart, few_rows, replay_of
from weaklink.collector.measuring.recorder import Recorder
from weaklink.collector.measuring.result import found, missing
from weaklink.collector.preserve import preserved
from weaklink.collector.probes.loop import PlainSgd, why_not_undoable
from weaklink.collector.probes.tiny import real_name
from weaklink.collector.step import needs_closure
from weaklink.collector.watching.optimizers import rate

ROWS = 32
TINY_STEPS = 100
RATE_STEPS = 50
FACTORS = (0.01, 0.1, 1.0, 10.0)
# The rates of plain SGD: one of them suits most losses that are means.
PLAIN_RATES = (0.1, 0.5)
# Processor time of one fit; what takes longer ends early and says at which step.
SECONDS = 10.0
_COLUMNS = ("steps by", "learning rate", "loss before", "loss after", "lowest", "steps")


@dataclass
class Pinned:
    """The loss of one batch as a function of the weights as they are now.

    Attributes:
        loss: Computes it, with a graph.
        models: What it calls; `trained`: what requires a gradient.
        what: The batch, in words.
        constant: The least loss of an output that is the same for every row; None where that is not known.
    """

    loss: Callable[[], Tensor]
    models: list[nn.Module]
    trained: list[Tensor]
    what: str
    constant: float | None = None


class _Fits(StepPart):
    def pinned(self, step: Step, recorder: Recorder) -> Pinned:
        """A few rows where they can be cut out of the batch, else all of it.

        Raises:
            NotReplayable: The loss cannot be computed again.
        """
        replay = replay_of(step, recorder)
        trained = replay.trained(step.optimizers)
        batch = few_rows(step, ROWS) if len(replay.models) == 1 else None
        if batch is None or batch.objective is None:
            calls = len(step.losses)
            what = (
                f"the batch of step {self.step}" if calls == 1 else f"the {calls} losses of step {self.step} together"
            )
            return Pinned(replay.loss, replay.models, trained, what)
        model, objective = replay.models[0], batch.objective

        def loss() -> Tensor:
            return objective.loss(floating(model(*fresh(batch.args), **fresh(batch.kwargs))))

        rows = objective.shape[0] if objective.shape else 1
        what = f"the first {rows} rows of the batch of step {self.step}, {objective.kind}"
        return Pinned(loss, replay.models, trained, what, objective.constant())

    def measure(self, step: Step, recorder: Recorder) -> InstrumentResult:
        try:
            pinned = self.pinned(step, recorder)
        except NotReplayable as error:
            return missing(self.name, self.step, str(error))
        if not pinned.trained:
            return missing(self.name, self.step, "nothing that the loss comes from requires a gradient")
        return self.fitted(pinned, step.optimizers)

    @abstractmethod
    def fitted(self, pinned: Pinned, optimizers: list[Optimizer]) -> InstrumentResult:
        """The figures."""

    def _notes(
        self, pinned: Pinned, optimizers: Sequence[Optimizer], rows: Sequence[Sequence[Value]], steps: int
    ) -> list[str]:
        notes = []
        if optimizers:
            held = {id(t) for one in optimizers for group in one.param_groups for t in group["params"]}
            own = sum(id(tensor) in held for tensor in pinned.trained)
            notes.append(f"the run's own optimizer holds {own} of the {len(pinned.trained)} tensors trained here")
        if pinned.constant is not None:
            notes.append(f"an output that is the same for every row reaches {pinned.constant:.4g} at best")
        if any(row[-1] != steps for row in rows):
            notes.append(f"fewer steps than {steps}: the loss was no longer finite, or {SECONDS:g} s were spent")
        notes.append("the loss is the script's own, computed again; clipping, schedules and scaling are not repeated")
        return notes


class TinyBatchPart(_Fits):
    """`tiny_batch`."""

    def fitted(self, pinned: Pinned, optimizers: list[Optimizer]) -> InstrumentResult:
        refused = _refused(optimizers)
        rates = sorted({rate(group) for one in optimizers for group in one.param_groups})
        rows: list[list[Value]] = []
        if refused is None:
            rows.append([real_name(optimizers), _rates(rates), *_fit(pinned, optimizers, TINY_STEPS)])
        for lr in PLAIN_RATES:
            rows.append(["fresh plain SGD", lr, *_fit(pinned, [PlainSgd(pinned.trained, lr)], TINY_STEPS)])
        notes = self._notes(pinned, optimizers, rows, TINY_STEPS)
        if refused is not None:
            notes.insert(0, f"the run's own optimizer was not tried: {refused}")
        elif not any(rates):  # the first step of a warm-up: that nothing is fitted says nothing
            notes.insert(0, "the rate of the run's own optimizer is 0 at that step: ask for a later one")
        return found(self.name, self.step, f"{TINY_STEPS} steps on {pinned.what}", _COLUMNS, rows, notes)


class LearningRatesPart(_Fits):
    """`learning_rates`."""

    def fitted(self, pinned: Pinned, optimizers: list[Optimizer]) -> InstrumentResult:
        if (refused := _refused(optimizers)) is not None:
            return missing(self.name, self.step, refused)
        own = [rate(group) for one in optimizers for group in one.param_groups]
        at_zero = not any(own)
        rows: list[list[Value]] = []
        for factor in FACTORS:
            with preserved([], optimizers):
                for optimizer in optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = factor * (declared_rate(group) if at_zero else rate(group))
                rates = sorted({rate(group) for one in optimizers for group in one.param_groups})
                rows.append(
                    [f"{real_name(optimizers)} x {factor:g}", _rates(rates), *_fit(pinned, optimizers, RATE_STEPS)]
                )
        notes = self._notes(pinned, optimizers, rows, RATE_STEPS)
        if at_zero:
            notes.insert(0, "its rate is 0 at that step: the factors are of the highest rate that its groups know of")
        return found(self.name, self.step, f"{RATE_STEPS} steps on {pinned.what}", _COLUMNS, rows, notes)


def _refused(optimizers: Sequence[Optimizer]) -> str | None:
    if not optimizers:
        return "no optimizer stepped after that backward"
    return why_not_undoable(optimizers)


def _rates(rates: list[float]) -> Value:
    return rates[0] if len(rates) == 1 else f"{rates[0]:g} to {rates[-1]:g}"


def _fit(pinned: Pinned, optimizers: Sequence[Optimizer | PlainSgd], steps: int) -> list[Value]:
    """Loss before the first step, loss after the last one, the lowest between, and the number of steps; undone."""
    real = [one for one in optimizers if isinstance(one, Optimizer)]
    until = time.process_time() + SECONDS
    with preserved(pinned.models, real, [*pinned.trained]), torch.enable_grad():
        first = lowest = last = _loss(pinned, optimizers, 0)
        taken = 0
        while taken < steps and math.isfinite(last) and time.process_time() < until:
            for optimizer in optimizers:
                _step(pinned, optimizers, optimizer, taken)
            taken += 1
            last = _loss(pinned, optimizers, taken)
            lowest = min(lowest, last)
    return [first, last, lowest, taken]


def _loss(pinned: Pinned, optimizers: Sequence[Any], step: int) -> float:
    """One forward and its gradients. Random numbers differ from step to step, and are the same in every fit."""
    for tensor in pinned.trained:
        tensor.grad = None
    for optimizer in optimizers:
        optimizer.zero_grad()
    torch.manual_seed(step)
    loss = pinned.loss()
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


def _step(pinned: Pinned, optimizers: Sequence[Any], optimizer: Any, step: int) -> None:
    if isinstance(optimizer, PlainSgd) or not needs_closure(optimizer):
        optimizer.step()
        return

    def closure() -> float:
        return _loss(pinned, optimizers, step)

    optimizer.step(closure)
