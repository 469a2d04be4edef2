"""Watches learning rates over the whole run: what was declared, what steps used, what schedules would still do.

In every step it reads a few numbers from the parameter groups. A rate that has changed by an order of magnitude since
the last sampled step makes the next step a sampled one.
"""

from __future__ import annotations

import math
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import scheduler_classes, unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry, rate
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.tape import StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# Extra samples that changes of the rate may ask for, and the change that asks for one.
EXTRA_SAMPLES = 24
CHANGE = 10.0
# A look follows a schedule this far ahead, and no longer than so many seconds.
AHEAD_STEPS = 50_000
AHEAD_SECONDS = 1.0
KEPT_SCHEDULERS = 8
COMPARED_PARAMETERS = 16


@dataclass
class GroupRates:
    """The rates of one parameter group at the steps that were executed.

    `declared` is what the optimizer was given, as torch's schedulers keep it; NaN without one.
    """

    declared: float
    first: float
    highest: float
    last: float
    fell: bool = False
    rose: bool = False
    zero_steps: int = 0


@dataclass
class OptimizerRates:
    """One optimizer's groups, and how many steps it was asked for."""

    optimizer: int
    groups: list[GroupRates]
    steps: int = 0


@dataclass
class ScheduleSeen:
    """One scheduler object: where it was made, where it is stepped, and how often since the training began."""

    class_name: str
    built: Site | None
    stepped: Site | None = None
    steps: int = 0
    optimizer: int | None = None
    look: str | None = None
    by_metric: bool = False


@dataclass
class StillStep:
    """A sampled step that moved nothing in any bit. `would_move`: whether the highest rate times the gradient does."""

    step: int
    optimizer: int
    rates: list[float]
    would_move: bool


@dataclass
class ScheduleRecord:
    """Everything about rates."""

    optimizers: dict[int, OptimizerRates] = field(default_factory=dict)
    schedules: list[ScheduleSeen] = field(default_factory=list)
    still: list[StillStep] = field(default_factory=list)
    # Evaluation passes, and passes over the loader most often used, with steps before and after.
    evaluations: int = 0
    passes: int = 0


class SchedulePart(Part):
    """Rates, schedulers, and steps that move nothing."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.rates = self.tape.record(ScheduleRecord)
        self._known: dict[int, tuple[weakref.ref[Any], ScheduleSeen]] = {}
        self._inside = False
        self._at_sample: dict[int, float] = {}
        self._extra = 0
        self._evaluated_at = 0
        self._passes: dict[int, tuple[weakref.ref[Any], int, int]] = {}

    def install(self) -> None:
        """Hook the schedulers' `step`, and the loaders' passes."""
        for scheduler in scheduler_classes():
            self.watcher.wrap(scheduler, "step", self._scheduler_step)
        self.watcher.wrap(DataLoader, "__iter__", self._pass_begins)

    # -- schedulers ------------------------------------------------------------------------------------------------

    @unseen_by_warnings
    def _scheduler_step(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        # A subclass that calls its parent's step, and a scheduler made of others, count once.
        if self._inside:
            return original(scheduler, *args, **kwargs)
        self._inside = True
        try:
            self.watcher.guarded(self._note_scheduler)(scheduler)
            return original(scheduler, *args, **kwargs)
        finally:
            self._inside = False

    def _note_scheduler(self, scheduler: Any) -> None:
        ref, seen = self._known.get(id(scheduler), (None, None))
        if seen is None or ref is None or ref() is not scheduler:
            if len(self.rates.schedules) >= KEPT_SCHEDULERS:
                return
            # Its constructor takes a first step: that is where it is made.
            name = type(scheduler).__name__
            seen = ScheduleSeen(name, self.watcher.code.site(f"{name} built"))
            seen.by_metric = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            self._known[id(scheduler)] = (weakref.ref(scheduler), seen)
            self.rates.schedules.append(seen)
            return
        if not self.tape.steps and not self.tape.backwards:
            return
        seen.steps += 1
        if seen.stepped is None:
            self._first_step(scheduler, seen)

    def _first_step(self, scheduler: Any, seen: ScheduleSeen) -> None:
        seen.stepped = self.watcher.code.site("scheduler stepped")
        optimizer = getattr(scheduler, "optimizer", None)
        if isinstance(optimizer, Optimizer):
            entry, _ = self.watcher.optimizers.entry(optimizer, None, self.watcher.order + 1)
            seen.optimizer = entry.serial
            if not seen.by_metric:
                seen.look = f"schedule {self.rates.schedules.index(seen)}"
                self.watcher.looks.take(seen.look, lambda: _ahead(scheduler, optimizer))

    # -- steps -----------------------------------------------------------------------------------------------------

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Read the rates this step will use."""
        used = [rate(group) for group in optimizer.param_groups]
        known = self.rates.optimizers.get(entry.serial)
        if known is None:
            known = self.rates.optimizers[entry.serial] = OptimizerRates(entry.serial, [])
        known.steps += 1
        for index, value in enumerate(used):
            if index >= len(known.groups):
                declared = rate({"lr": optimizer.param_groups[index].get("initial_lr", math.nan)})
                known.groups.append(GroupRates(declared, value, value, value))
            group = known.groups[index]
            group.rose, group.fell = group.rose or value > group.last, group.fell or value < group.last
            group.last, group.highest = value, max(group.highest, value)
            group.zero_steps += value == 0.0
        self._sample_changes(entry.serial, max(used, default=math.nan))

    def _sample_changes(self, serial: int, highest: float) -> None:
        if self.watcher.sampling:
            self._at_sample[serial] = highest
            return
        before = self._at_sample.get(serial)
        if before is None or before == highest or self._extra >= EXTRA_SAMPLES:
            return
        if highest * CHANGE <= before or before * CHANGE <= highest:
            self._extra += 1
            self._at_sample[serial] = highest
            self.watcher.sample_next()

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """Note a step that moved nothing although it had a gradient to take."""
        if sample is None or not sample.gradient_norm or not math.isfinite(sample.gradient_norm):
            return
        held = [serial for serial in sample.consumed if serial in sample.moved]
        if held and not any(sample.moved[serial] for serial in held):
            rates = [group.highest for group in self.rates.optimizers[entry.serial].groups]
            self.rates.still.append(StillStep(sample.step, entry.serial, list(sample.lr), _moves(optimizer, rates)))

    # -- how far the run goes --------------------------------------------------------------------------------------

    def root_called(self, call: RootCall) -> None:
        """Count evaluations that have steps before them."""
        if not call.with_gradients and self.tape.steps > self._evaluated_at:
            self._evaluated_at = self.tape.steps
            self.rates.evaluations += 1

    @unseen_by_warnings
    def _pass_begins(self, original: Callable[..., Any], loader: Any, *args: Any, **kwargs: Any) -> Any:
        self.watcher.guarded(self._note_pass)(loader)
        return original(loader, *args, **kwargs)

    def _note_pass(self, loader: Any) -> None:
        ref, steps, passes = self._passes.get(id(loader), (None, -1, 0))
        if ref is None or ref() is not loader:
            steps, passes = -1, 0
        if self.tape.steps > steps:  # an evaluation loader passed twice in a row has no steps in between
            passes += 1
        self._passes[id(loader)] = (weakref.ref(loader), self.tape.steps, passes)
        self.rates.passes = max(self.rates.passes, passes)


def _moves(optimizer: Optimizer, highest: list[float]) -> bool:
    """Whether subtracting the highest rate times the gradient changes a bit of a few of the parameters."""
    with torch.no_grad():
        for group, value in zip(optimizer.param_groups, highest, strict=False):
            for tensor in group["params"][:COMPARED_PARAMETERS]:
                if not isinstance(tensor, Tensor) or tensor.grad is None or tensor.grad.layout != torch.strided:
                    continue
                if bool((tensor - value * tensor.grad.to(tensor.dtype) != tensor).any()):
                    return True
    return False


def _ahead(scheduler: Any, optimizer: Optimizer) -> dict[str, Any]:
    """Follow a schedule from here on: its highest rate, and when it is first reached. In a copy of the process."""
    group = optimizer.param_groups[0]
    counts, highest, at, first_zero = 0, rate(group), 0, None
    until = time.monotonic() + AHEAD_SECONDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while counts < AHEAD_STEPS and time.monotonic() < until:
            try:
                scheduler.step()
            except Exception:  # some refuse to be stepped beyond their end
                break
            counts += 1
            value = rate(group)
            if value > highest:
                highest, at = value, counts
            if value == 0.0 and first_zero is None and highest > 0.0:
                first_zero = counts
    return {"highest": highest, "at": at, "first_zero": first_zero, "followed": counts}
