"""Watches the order of calls around a step: clearing, clipping, scaling, backward, and what the step consumes."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.tensors import dense
from weaklink.collector.watching.calls import (
    KEPT,
    AtStep,
    BackwardPlace,
    CallsRecord,
    Clear,
    Clip,
    LateClip,
    ScaledClip,
)
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.received import left_over
from weaklink.collector.watching.tape import BackwardSample, StepSample
from weaklink.collector.watching.writes import WriteFinder

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# Of so many parameters, and so many entries of each, a sum is kept to see whether anybody moved them.
SUMMED_PARAMETERS, SUMMED_ENTRIES = 8, 4096


class OrderPart(Part):
    """Outside sampled steps it only compares one or two counters."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.calls = self.tape.record(CallsRecord)
        self._scaler: weakref.ref[Any] | None = None
        self._unscaled: set[int] = set()
        # Clips since the last backward, and clips after a step that nothing has followed yet.
        self._clips: list[Clip] = []
        self._late: list[Clip] = []
        # Backward calls that had been made when an optimizer was last asked to step, by its serial number.
        self._stepped_at: dict[int, int] = {}
        self._in_step = False
        self._edits_wanted = False
        self._edits = WriteFinder(watcher.code, self.calls.edits, "gradient changed in place")

    def install(self) -> None:
        """Hook what clears, clips and scales."""
        self.watcher.wrap(Optimizer, "zero_grad", self._cleared)
        self.watcher.wrap(nn.Module, "zero_grad", self._cleared)
        for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
            self.watcher.wrap(owner, "clip_grad_norm_", self._clipped)
            self.watcher.wrap(owner, "clip_grad_value_", self._clipped)
        self.watcher.wrap(torch.amp.GradScaler, "scale", self._scale)
        self.watcher.wrap(torch.amp.GradScaler, "unscale_", self._unscale)
        self.watcher.wrap(torch.amp.GradScaler, "step", self._scaler_step)
        self.watcher.wrap(torch.amp.GradScaler, "get_scale", self._scale_read)

    # -- clearing --------------------------------------------------------------------------------------------------

    @unseen_by_warnings
    def _cleared(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.watcher.sampling and not self._in_step and len(self.calls.clears) < KEPT:
            site = self.watcher.code.site("gradients cleared")
            self.calls.clears.append(Clear(self.tape.steps + 1, self.tape.backwards, site))
        return original(*args, **kwargs)

    # -- clipping --------------------------------------------------------------------------------------------------

    @unseen_by_warnings
    def _clipped(self, original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.watcher.sampling or len(self.calls.clips) >= KEPT:
            return original(parameters, *args, **kwargs)
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if given and not isinstance(parameters, Tensor):
            parameters = given  # a generator can be read once
        elif isinstance(parameters, GeneratorType):
            parameters = _as_generator(given)
        result = original(parameters, *args, **kwargs)
        limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value"))
        self.watcher.guarded(self._note_clip)(given, limit, result)
        return result

    def _note_clip(self, given: list[Tensor], limit: Any, norm: Any) -> None:
        entries = [self.watcher.parameters.entry(tensor) for tensor in given if tensor.grad is not None]
        clip = Clip(
            self.tape.steps + 1,
            self.tape.backwards,
            self.watcher.code.site("gradients clipped"),
            frozenset(entry.serial for entry in entries),
            float(limit),
            float(norm) if norm is not None else None,
            norm is None,
        )
        self.calls.clips.append(clip)
        owners = {owner for entry in entries for owner in entry.owners}
        # A closure clips inside the step, after a backward of its own.
        if owners and all(self._stepped_at.get(owner) == self.tape.backwards for owner in owners):
            self._late.append(clip)
        else:
            self._clips.append(clip)

    # -- scaling ---------------------------------------------------------------------------------------------------

    @unseen_by_warnings
    def _scale(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        if self._scaler is None or self._scaler() is not scaler:
            self._scaler = weakref.ref(scaler)
        return original(scaler, *args, **kwargs)

    @unseen_by_warnings
    def _unscale(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, optimizer, *args, **kwargs)
        self._unscaled.add(id(optimizer))
        return result

    @unseen_by_warnings
    def _scaler_step(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._clips and self.watcher.sampling:
            self.watcher.guarded(self._note_scaled)(scaler, optimizer)
        self.watcher.guarded(self._note_asked)(optimizer)
        return original(scaler, optimizer, *args, **kwargs)

    def _note_asked(self, optimizer: Any) -> None:
        if isinstance(optimizer, Optimizer):
            entry, _ = self.watcher.optimizers.entry(optimizer, None, self.watcher.order + 1)
            self._stepped_at[entry.serial] = self.tape.backwards

    def _note_scaled(self, scaler: Any, optimizer: Any) -> None:
        """The scaler will divide these gradients by its scale now: what clipped them before, clipped scaled ones."""
        if id(optimizer) in self._unscaled or not isinstance(optimizer, Optimizer):
            return
        with self.watcher.looking_away():
            scale = float(scaler.get_scale())
        entry, _ = self.watcher.optimizers.entry(optimizer, None, self.watcher.order + 1)
        held = {self.watcher.parameters.entry(p).serial for group in optimizer.param_groups for p in group["params"]}
        for clip in self._clips:
            if scale != 1.0 and clip.serials & held and len(self.calls.scaled_clips) < KEPT:
                self.calls.scaled_clips.append(ScaledClip(clip, scale, entry.serial))

    @unseen_by_warnings
    def _scale_read(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.watcher.code.direct_site("scale read") is not None:
            self.calls.scales_read += 1
        return original(*args, **kwargs)

    # -- backward and step -----------------------------------------------------------------------------------------

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Decide what became of a clip after the step, and note the way that led here."""
        self._clips.clear()
        self._unscaled.clear()
        if not self.tape.steps and _is_power_of_two(self.tape.backwards) and not self.calls.moved_unstepped:
            # Here and not at the end: a model that lived in a function is gone by then.
            self.calls.moved_unstepped = self.watcher.movement.moved_without_step()
            self.calls.moved_until = self.tape.backwards
        if sample is None:
            self._late.clear()
            return
        for clip in self._late:
            self.calls.late_clips.append(LateClip(clip, not clip.serials & set(sample.left_over)))
        self._late.clear()
        if len(self.calls.backwards) < KEPT:
            asked = self.tape.steps_asked + self.tape.scaler_asked
            self.calls.backwards[sample.index] = BackwardPlace(
                sample.index, self._path(), asked, self._sums(), self._in_step
            )

    def backward_ended(self, sample: BackwardSample | None) -> None:
        """Look for the line that changes gradients, once it is known that one does."""
        if self._edits_wanted and sample is not None and not self._in_step:
            gradients = {id(t.grad) for _, t in self.watcher.parameters.alive() if t.is_leaf and t.grad is not None}
            self._edits.begin(lambda tensor: id(tensor) in gradients)

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """What the step is about to consume, against what the last backward left."""
        self._edits.end()
        self._in_step = True
        self._stepped_at[entry.serial] = self.tape.backwards
        if self._late:
            self._late = [clip for clip in self._late if not clip.serials & set(entry.held)]
        if not self.watcher.sampling or len(self.calls.at_step) >= KEPT:
            return
        norms = left_over(self.watcher.parameters)
        zeroed = self._zeroed(entry, norms)
        self._edits_wanted = self._edits_wanted or bool(zeroed)
        self.calls.at_step.append(AtStep(self.tape.steps + 1, entry.serial, norms, zeroed))

    def _zeroed(self, entry: OptimizerEntry, norms: dict[int, float]) -> frozenset[int]:
        window = self.tape.windows[-1]
        after = window.backwards[-1].gradients if window.backwards else {}
        alive = {e.serial: t for e, t in self.watcher.parameters.alive()}
        return frozenset(
            serial
            for serial in entry.held
            if serial not in norms
            and after.get(serial, ("missing", None))[0] == "nonzero"
            and serial in alive
            and alive[serial].grad is not None
        )

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """The step is over: a backward from now on is the loop's own."""
        self._in_step = False

    def _path(self) -> int:
        """The user's lines on the stack: two calls that come the same way have the same number."""
        frame: FrameType | None = sys._getframe(1)
        lines: list[tuple[str, int]] = []
        while frame is not None:
            if self.watcher.code.relative(frame.f_code.co_filename) is not None:
                lines.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        return hash(tuple(lines))

    def _sums(self) -> tuple[float, ...]:
        chosen = [
            t for e, t in self.watcher.parameters.alive() if e.owners and t.requires_grad and t.is_floating_point()
        ]
        with torch.no_grad():
            sums = [
                dense(tensor).reshape(-1)[:SUMMED_ENTRIES].double().sum()
                for tensor in chosen[:: max(1, len(chosen) // SUMMED_PARAMETERS)][:SUMMED_PARAMETERS]
                if tensor.device.type not in ("meta", "mps")
            ]
            return tuple(float(value) for value in torch.stack([s.cpu() for s in sums]).tolist()) if sums else ()


def _as_generator(parameters: list[Tensor]) -> Iterator[Tensor]:
    """Torch warns about a generator that gives nothing."""
    yield from parameters


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
