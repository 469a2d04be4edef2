"""What changes about the training while it goes on: what is trainable, what is held, what the model is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.tape import StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

Kind = Literal["frozen", "thawed", "group added", "optimizer begins", "parameters new"]

# Networks that take turns freeze and thaw each other at every step: the first changes tell that.
KEPT_CHANGES = 32
# User frames that are kept of a change: a helper freezes and thaws at one line, and its callers at two.
FRAMES = 4
# Samples that changes may ask for.
EXTRA_SAMPLES = 12


@dataclass
class Change:
    """One change, made by one line at one moment.

    Attributes:
        step: The steps that were over.
        serials: Parameters it was about.
        frames: The user's lines, innermost first; empty for a plain assignment, which nothing tells of.
    """

    kind: Kind
    step: int
    serials: set[int]
    frames: list[Site]


@dataclass
class ChangesRecord:
    """Changes in their order; `more` counts those that were not kept."""

    changes: list[Change] = field(default_factory=list)
    more: int = 0


class ChangesPart(Part):
    """Compares flags in sampled steps and once an evaluation; hears of what is changed by a call."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.seen = self.tape.record(ChangesRecord)
        self._flags: dict[int, bool] = {}
        self._trainable = -1
        self._compared_at = -1
        self._extra = 0

    def install(self) -> None:
        """Hear of flags that are set by a method, and of groups that are added."""
        self.watcher.wrap(Tensor, "requires_grad_", self._set)
        self.watcher.wrap(Optimizer, "add_param_group", self._grouped)

    @unseen_by_warnings
    def _set(self, original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
        before = tensor.requires_grad
        result = original(tensor, *args, **kwargs)
        if isinstance(tensor, nn.Parameter) and tensor.requires_grad != before:
            self.watcher.guarded(self._note_flag)(tensor, sys._getframe(1))
        return result

    def _note_flag(self, tensor: Tensor, frame: FrameType) -> None:
        serial, now = self.watcher.parameters.entry(tensor).serial, tensor.requires_grad
        self._flags[serial] = now
        if len(self.seen.changes) >= KEPT_CHANGES:
            self.seen.more += 1  # networks that take turns: no stack is walked for them any more
            return
        self._note("thawed" if now else "frozen", {serial}, self._frames(frame))

    @unseen_by_warnings
    def _grouped(self, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        known = {id(t) for group in getattr(optimizer, "param_groups", []) for t in group.get("params", [])}
        result = original(optimizer, *args, **kwargs)
        if known and self.tape.steps:
            self.watcher.guarded(self._note_group)(optimizer, known, sys._getframe(1))
        return result

    def _note_group(self, optimizer: Optimizer, known: set[int], frame: FrameType) -> None:
        """A constructor adds its groups too, one after the other: an optimizer that never stepped is being built."""
        if self.watcher.optimizers.entry(optimizer, None, self.watcher.order + 1)[0].steps:
            new = {
                self.watcher.parameters.entry(t).serial
                for group in optimizer.param_groups
                for t in group["params"]
                if isinstance(t, Tensor) and id(t) not in known
            }
            self._note("group added", new, self._frames(frame))

    def root_called(self, call: RootCall) -> None:
        """At the beginning of an evaluation: has the number of trainable parameters changed since?"""
        if call.with_gradients or self.tape.steps == self._compared_at:
            return
        self._compared_at = self.tape.steps
        trainable = self.watcher.roots.trainable()
        if self._trainable not in (-1, trainable):
            self.watcher.sample_next()
        self._trainable = trainable

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Note an optimizer's first step late in the run, and in a sampled step flags that were assigned."""
        if entry.steps == 0 and self.tape.steps:
            self._note("optimizer begins", set(entry.held), [entry.built] if entry.built else [])
        if self.watcher.sampling:
            self._compare()

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """A change asks for samples: what it brings about shows in the steps after it."""
        last = self.seen.changes[-1].step if self.seen.changes else 0
        if last and self._extra < EXTRA_SAMPLES and self.tape.steps - last in (1, 2):
            self._extra += 1
            self.watcher.sample_next()

    def _compare(self) -> None:
        flags: dict[int, bool] = {}
        new: set[int] = set()
        for entry, tensor in self.watcher.parameters.alive():
            if entry.in_model or entry.owners:
                flags[entry.serial] = tensor.requires_grad
                if entry.serial not in self._flags and entry.in_model and self.tape.steps and tensor.requires_grad:
                    new.add(entry.serial)
        known = {s: self._flags[s] for s in flags if s in self._flags}
        self._note("thawed", {s for s, before in known.items() if flags[s] and not before}, [])
        self._note("frozen", {s for s, before in known.items() if before and not flags[s]}, [])
        self._note("parameters new", new, self._made(new))
        self._flags.update(flags)

    def _made(self, serials: set[int]) -> list[Site]:
        entries = self.watcher.parameters.entries
        return [site for serial in sorted(serials)[:1] if (site := entries[serial].created) is not None]

    def _note(self, kind: Kind, serials: set[int], frames: list[Site]) -> None:
        if not serials:
            return
        last = self.seen.changes[-1] if self.seen.changes else None
        places = [frame.place for frame in frames]
        same = last is not None and (last.kind, last.step) == (kind, self.tape.steps)
        if last is not None and same and [frame.place for frame in last.frames] == places:
            last.serials |= serials
        elif len(self.seen.changes) < KEPT_CHANGES:
            self.seen.changes.append(Change(kind, self.tape.steps, set(serials), frames))
        else:
            self.seen.more += 1

    def _frames(self, frame: FrameType | None) -> list[Site]:
        found: list[Site] = []
        while frame is not None and len(found) < FRAMES:
            if (name := self.watcher.code.relative(frame.f_code.co_filename)) is not None:
                found.append(Site(file=name, line=frame.f_lineno, what="changed here"))
            frame = frame.f_back
        return found
