"""A schedule that counts optimizer steps, whatever the script makes it count."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, ReduceLROnPlateau, SequentialLR

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import scheduler_classes, unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class StepSchedulerPerStep(Intervention):
    """The script's own calls of `step` do nothing; right after each n-th step of its optimizer a scheduler advances.

    One that is made of others advances, and they with it. One that follows a metric is left to the script.
    """

    name = "step_scheduler_per_step"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._every = int(str(self.parameters["n"]))
        self._known: list[weakref.ref[Any]] = []
        self._taken: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        # Steps that the schedule takes of its own: in its constructor, and where we let it.
        self._inside = 0
        self._asked = self._advanced = 0
        watcher.wrap(LRScheduler, "_initial_step", self._built)
        for composite in (SequentialLR, ChainedScheduler):
            watcher.wrap(composite, "__init__", self._built)
        watcher.after_step.append(self._stepped)
        # Outermost: who counts a schedule's steps is to count those that it takes.
        watcher.when_installed.append(self._stand_in)

    def _stand_in(self) -> None:
        for kind in scheduler_classes():
            if not issubclass(kind, ReduceLROnPlateau):
                self._watcher.wrap(kind, "step", self._step)

    @unseen_by_warnings
    def _built(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        self._inside += 1
        try:
            return original(scheduler, *args, **kwargs)
        finally:
            self._inside -= 1
            if not isinstance(scheduler, ReduceLROnPlateau):
                self._known.append(weakref.ref(scheduler))

    @unseen_by_warnings
    def _step(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if self._inside:
            return original(scheduler, *args, **kwargs)
        self._asked += 1
        self._differs()
        return None

    def _stepped(self, optimizer: Optimizer) -> None:
        taken = self._taken[optimizer] = self._taken.get(optimizer, 0) + 1
        if taken % self._every:
            return
        for scheduler in self._schedulers(optimizer):
            self._advanced += 1
            self._differs()
            self._inside += 1
            try:
                scheduler.step()
            finally:
                self._inside -= 1

    def _differs(self) -> None:
        """A script that steps its schedule once after each n-th step does what we do: then nothing was changed."""
        if self._asked > self._advanced or self._advanced > self._asked + len(self._schedulers(None)):
            self.note_changed(self._watcher, "lr", f"schedulers step after every {self._every}. optimizer step")

    def _schedulers(self, optimizer: Optimizer | None) -> list[Any]:
        """The optimizer's own that are part of no other; all of them without one."""
        alive = {id(each): each for ref in self._known if (each := ref()) is not None}
        parts = {id(part) for each in alive.values() for part in getattr(each, "_schedulers", ())}
        own = [each for key, each in alive.items() if key not in parts]
        return [each for each in own if optimizer is None or getattr(each, "optimizer", None) is optimizer]
