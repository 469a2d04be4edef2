"""Keeps how a run began, so that its first steps can be taken again in a copy of its process."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.looking.beginning import Beginning, look_at_beginning
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.forwards import Forwards, ForwardsRecord
from weaklink.collector.watching.optimizers import OptimizerEntry, rate
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

LOOK = "beginning"
# So many first steps, one batch each, are kept; of an optimizer's state so many bytes.
FIRST_STEPS = 5
# Where a state was loaded, the look is put off to one of these steps: then there are batches that it has not seen.
LATER_STEPS = (20, 50)
STATE_BYTES = 64 * 1024 * 1024
KEPT_LOADS = 4


@dataclass
class LoadedState:
    """An optimizer that had a state before its first step of this run.

    Attributes:
        counts: The least and the largest number of steps that the state itself speaks of; None where it counts none.
        size: Root mean square of gradient entries that the state remembers, by the second moment it keeps; None
            without one.
        gradient: The same of the gradients at the first step.
    """

    optimizer: int
    tensors: int
    counts: tuple[float, float] | None
    size: float | None
    gradient: float | None


@dataclass
class BeginningRecord:
    """States that were there before a first step, and the lines that loaded optimizers' states."""

    loaded: list[LoadedState] = field(default_factory=list)
    load_sites: list[Site] = field(default_factory=list)


class BeginningPart(Part):
    """After the first steps it does nothing any more."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._rates: list[float] = []
        self._state: dict[int, dict[str, Any]] = {}
        self._given_up = False

    def install(self) -> None:
        """Note which line gives an optimizer its state."""
        self.watcher.wrap(Optimizer, "load_state_dict", self._loaded)

    @unseen_by_warnings
    def _loaded(self, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        sites = self.tape.record(BeginningRecord).load_sites
        site = self.watcher.code.site("optimizer state loaded")
        if site is not None and len(sites) < KEPT_LOADS and site not in sites:
            sites.append(site)
        return original(optimizer, *args, **kwargs)

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """At the run's first step, keep what the optimizer begins with."""
        if entry.steps == 0 and optimizer.state:
            self._note_state(optimizer, entry)
        if self.tape.steps or self._given_up:
            return
        self._optimizer = weakref.ref(optimizer)
        self._rates = [rate(group) for group in optimizer.param_groups]
        held = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        state = {position: optimizer.state[tensor] for position, tensor in enumerate(held) if tensor in optimizer.state}
        if _bytes(state) > STATE_BYTES:
            self._given_up = True
        else:
            self._state = copy.deepcopy(state)

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """After the first steps, all of one optimizer and of one batch each, hold a look."""
        steps = self.tape.steps
        if self._given_up or (steps > FIRST_STEPS and (steps not in LATER_STEPS or not self._state)):
            return
        self._given_up = self._optimizer is None or self._optimizer() is not optimizer
        if self._given_up or steps < FIRST_STEPS or not self.watcher.looks.allowed:
            return
        self._hold(optimizer)
        self._given_up = not self._state or steps >= LATER_STEPS[-1]
        if self._given_up:
            self._state = {}

    def _hold(self, optimizer: Optimizer) -> None:
        forwards = next((part for part in self.watcher.parts if isinstance(part, Forwards)), None)
        kept = forwards.first_batches() if forwards is not None else None
        seen = self.tape.record(ForwardsRecord).losses
        first = seen[:FIRST_STEPS]
        if kept is None or [step for step, _, _ in first] != list(range(1, FIRST_STEPS + 1)):
            return
        model, batches, initial = kept
        if len(batches) != len(seen) or not self._steps_on(first) or isinstance(optimizer, torch.optim.LBFGS):
            return
        later = zip(batches[FIRST_STEPS:], seen[FIRST_STEPS:], strict=True)
        unseen = {step: (batch, loss) for batch, (step, loss, _) in later}
        losses = [loss for _, loss, _ in first]
        beginning = Beginning(batches[:FIRST_STEPS], losses, initial, self._rates, self._state, unseen)
        self.watcher.looks.hold(LOOK, lambda: look_at_beginning(model, optimizer, beginning))

    def _steps_on(self, seen: list[tuple[int, float, float]]) -> bool:
        """Whether each of these steps came of one backward, on nothing but the loss that is known."""
        windows = self.tape.windows[:FIRST_STEPS]
        for window, (step, loss, _) in zip(windows, seen, strict=True):
            losses = [backward.loss for backward in window.backwards]
            if window.step != step or len(losses) != 1 or losses[0] is None:
                return False
            if not abs(losses[0] - loss) <= 1e-3 * abs(loss):
                return False
        return True

    def _note_state(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        states = [state for state in optimizer.state.values() if isinstance(state, dict) and state]
        counts = [_number(state["step"]) for state in states if "step" in state]
        pairs = [
            (state["exp_avg_sq"], tensor.grad)
            for tensor, state in optimizer.state.items()
            if isinstance(state, dict) and isinstance(state.get("exp_avg_sq"), Tensor)
            if isinstance(tensor, Tensor) and tensor.grad is not None and tensor.grad.layout == torch.strided
        ]
        loaded = self.tape.record(BeginningRecord).loaded
        if states and len(loaded) < KEPT_LOADS:
            known = (min(counts), max(counts)) if counts else None
            loaded.append(LoadedState(entry.serial, len(states), known, *_sizes(pairs)))

    def finish(self) -> None:
        """A run that learned from a fresh optimizer needs no second beginning."""
        if self.tape.record(ForwardsRecord).learned and not self.tape.record(BeginningRecord).loaded:
            self.watcher.looks.forget(LOOK, "the run itself fits its data better than any constant output")


def _sizes(pairs: list[tuple[Tensor, Tensor]]) -> tuple[float | None, float | None]:
    """Root mean square of what the second moments remember, and of the gradients that are there."""
    entries = sum(gradient.numel() for _, gradient in pairs)
    if not entries:
        return None, None
    with torch.no_grad():
        moments = sum(float(moment.double().sum()) for moment, _ in pairs)
        gradients = sum(float(gradient.double().pow(2).sum()) for _, gradient in pairs)
    return (max(moments, 0.0) / entries) ** 0.5, (gradients / entries) ** 0.5


def _number(value: Any) -> float:
    return float(value.item()) if isinstance(value, Tensor) else float(value)


def _bytes(state: dict[int, dict[str, Any]]) -> int:
    tensors = [v for one in state.values() if isinstance(one, dict) for v in one.values() if isinstance(v, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
