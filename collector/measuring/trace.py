"""`nonfinite_trace`: the operation that makes the first value that is not finite, and what each layer put out then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.asked import InstrumentResult
from weaklink.collector.close_up.part import CloseUp
from weaklink.collector.close_up.records import CloseUpRecord, Origin
from weaklink.collector.evidence import Value
from weaklink.collector.job import CLOSE_UP_STEPS
from weaklink.collector.measuring.calls import Call, ModuleCalls, name_in_run
from weaklink.collector.measuring.part import Waiting
from weaklink.collector.measuring.result import found, missing
from weaklink.collector.probes.loop import to_host
from weaklink.collector.rows.close_up import lasting_origin
from weaklink.collector.tensors import dense, tensors_in
from weaklink.collector.watching.context import is_transformed
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.tape import StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

_COLUMNS = ("layer", "kind", "not finite", "entries", "inputs not finite")
_CALLS = 4000


class TracePart(Waiting):
    """Beside the close-up, which finds the operation: counts what each layer was given and put out, step by step."""

    def __init__(self, watcher: Watcher, name: str, step: int, path: Path, close_up: CloseUp) -> None:
        super().__init__(watcher, name, step, path)
        self._close_up = close_up

    def begin(self) -> None:
        self._steps: dict[int, list[tuple[Call, int, Tensor, Tensor]]] = {}
        self._parameters: dict[int, list[str]] = {}
        self._calls = ModuleCalls(lambda: self.watcher.paused, self._begins, self._ended)

    def _begins(self, call: Call) -> None:
        step = self.tape.steps + 1
        if step not in self._parameters and torch.is_grad_enabled():
            with self.watcher.looking_away(), torch.no_grad():
                named = [(name, t) for name, t in call.module.named_parameters() if not t.is_meta]
                counts = to_host([_count([tensor]) for _, tensor in named])
                self._parameters[step] = [name for (name, _), count in zip(named, counts, strict=True) if count]

    def _ended(self, call: Call, args: Any, kwargs: Any, output: Any) -> None:
        calls = self._steps.setdefault(self.tape.steps + 1, [])
        tensors, given = list(tensors_in(output)), list(tensors_in([args, kwargs]))
        if call.inner or not torch.is_grad_enabled() or len(calls) >= _CALLS or any(map(is_transformed, tensors)):
            return
        entries = sum(tensor.numel() for tensor in tensors)
        with self.watcher.looking_away(), torch.no_grad():
            calls.append((call, entries, _count(tensors), _count(given)))

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        if self.open and self.tape.steps >= self.step + CLOSE_UP_STEPS - 1:
            self.answer(self.over)
        elif not self.open:
            super().step_ended(optimizer, entry, sample)

    def finish(self) -> None:
        super().finish()
        if self.open:
            self._calls.remove()

    def over(self) -> InstrumentResult:
        """What the close-up found in the steps that there were."""
        record = self.tape.record(CloseUpRecord)
        origin = lasting_origin(record) if record.origins else self._close_up.unfinished_origin()
        if origin is None:
            return self._nothing(record)
        calls = self._steps.get(origin.step, [])
        counts = to_host([count for *_, output, given in calls for count in (output, given)])
        rows: list[list[Value]] = [
            [
                name_in_run(call, self.watcher),
                type(call.module).__name__,
                int(counts[2 * number]),
                entries,
                int(counts[2 * number + 1]),
            ]
            for number, (call, entries, _, _) in enumerate(calls)
        ]
        title = f"outputs of the layers in the forward of step {origin.step}"
        return found(self.name, self.step, title, _COLUMNS, rows, [_said(origin), *self._notes(origin, rows, record)])

    def _nothing(self, record: CloseUpRecord) -> InstrumentResult:
        if not record.steps:
            reason = record.problem or "no backward was called in these steps"
            return missing(self.name, self.step, reason)
        first, last = record.steps[0], record.steps[-1]
        which = f"steps {first} to {last}" if last > first else f"step {first}"
        note = f"no operation of {which} makes a value that is not finite and reaches a loss"
        notes = [note, *([record.problem] if record.problem else [])]
        return found(self.name, self.step, "every value is finite", ("steps looked at",), [[len(record.steps)]], notes)

    def _notes(self, origin: Origin, rows: list[list[Value]], record: CloseUpRecord) -> list[str]:
        first = next((row for row in rows if row[2]), None)
        notes = [f"first layer whose output is not finite: {first[0]}" if first else "every layer's output is finite"]
        if broken := self._parameters.get(origin.step):
            notes.append(
                f"parameters not finite before that step: {', '.join(broken[:8])}{', ...' * (len(broken) > 8)}"
            )
        elif origin.step in self._parameters:
            notes.append("every parameter was finite before that step")
        if not record.origins:
            notes.append("the script ended before the backward of that step")
        return [*notes, *([record.problem] if record.problem else [])]


def _said(origin: Origin) -> str:
    place = origin.site.place if origin.site is not None else "a place that was not seen"
    what = origin.name if origin.direction == "forward" else f"the derivative of {origin.name.partition('Backward')[0]}"
    return f"first value that is not finite: made by {what} at {place}, in the {origin.direction} of step {origin.step}"


def _count(tensors: list[Tensor]) -> Tensor:
    counts = [(~torch.isfinite(dense(tensor))).sum() for tensor in tensors if not tensor.is_meta]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else torch.zeros(())
