"""`slices`: the loss of one step's examples by class, and by the slices of the data that the user declares."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.asked import InstrumentResult
from weaklink.collector.declared import Metric
from weaklink.collector.errors import WeaklinkError
from weaklink.collector.evidence import Value
from weaklink.collector.functions import load_function
from weaklink.collector.measuring.examples import Examples, NoExamples, examples_of
from weaklink.collector.measuring.pinned import Step, StepPart, same_number
from weaklink.collector.measuring.recorder import Recorder
from weaklink.collector.measuring.result import found, missing
from weaklink.collector.step import rows_of
from weaklink.collector.tensors import mapped

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

_COLUMNS = ("slice", "examples", "share", "mean loss", "accuracy")
# The declared metric, where it is one of the columns, decides which slice stands first.
_KNOWN = {"loss": 3, "mean loss": 3, "accuracy": 4, "acc": 4}


class SlicesPart(StepPart):
    """Answers at the step's first backward, before anything moves.

    Args:
        declared: Names of functions by slice; `metric` is the number that says which slice is the worst.
        folder: Where the functions are looked up.
    """

    at_backward = True

    def __init__(
        self,
        watcher: Watcher,
        name: str,
        step: int,
        path: Path,
        declared: Mapping[str, str],
        metric: Metric | None,
        folder: Path,
    ) -> None:
        super().__init__(watcher, name, step, path)
        self._declared, self._metric, self._folder = declared, metric, folder

    def measure(self, step: Step, recorder: Recorder) -> InstrumentResult:
        try:
            examples = examples_of(step, recorder)
        except NoExamples as error:
            return missing(self.name, self.step, str(error))
        rows = [_row("all", examples, torch.ones(len(examples.losses), dtype=torch.bool))]
        notes = [
            f"the loss is {examples.what}; its mean over the examples is {float(examples.losses.mean()):.4g}, "
            f"the script's loss {step.values[0]:.4g}"
        ]
        if not same_number(float(examples.losses.mean()), step.values[0], step.losses[0].dtype):
            notes.append(
                "they differ: a sum, weights of classes, smoothing, a factor or another term are left out here"
            )
        parts: list[list[Value]] = []
        if examples.classes is None:
            notes.append("by class: not measured, the targets are no class indices that the loss was given")
        else:
            for label in sorted(set(examples.classes.tolist())):
                parts.append(_row(f"class {label}", examples, examples.classes == label))
        for label, function in self._declared.items():
            picked, reason = self._picked(label, function, examples)
            if picked is None:
                notes.append(f"slice {label}: not measured, {reason}")
            else:
                parts.append(_row(label, examples, picked[examples.rows]))
        rows += self._worst_first(parts, notes)
        return found(self.name, self.step, f"the batch of step {self.step}", _COLUMNS, rows, notes)

    def _worst_first(self, parts: list[list[Value]], notes: list[str]) -> list[list[Value]]:
        """Highest loss first, or by the declared metric where the table has it; NaN before all, empty slices last."""
        column, up = 3, True
        if self._metric is not None:
            known = _KNOWN.get(self._metric.name.lower().replace("_", " "))
            if known is None:
                notes.append(f"the declared metric {self._metric.name!r} is none of the columns: sorted by mean loss")
            else:
                column, up = known, self._metric.direction == "min"
                notes.append(f"worst first by the declared metric {self._metric.name!r} ({self._metric.direction})")

        def key(row: list[Value]) -> tuple[bool, float]:
            value = row[column]
            if not isinstance(value, float):
                return True, 0.0
            return False, -math.inf if math.isnan(value) else -value if up else value

        return sorted(parts, key=key)

    def _picked(self, label: str, name: str, examples: Examples) -> tuple[Tensor | None, str]:
        """A flag for each row of the batch, from the user's function; or why there is none."""
        if examples.call is None:
            return None, "no model's call is known that the examples were given to"
        args, kwargs = examples.call.args, examples.call.kwargs
        inputs = dict(kwargs) if kwargs and not args else args[0] if len(args) == 1 else args
        count = int(examples.rows.max()) + 1 if len(examples.rows) else 0
        length = rows_of([args, kwargs]) or count
        try:
            function = load_function(name, self._folder, f"[slices] {label}")
            given = [mapped(inputs, lambda tensor: tensor.detach().clone())]
            if _takes_targets(function):
                given.append(examples.classes)
            picked = torch.as_tensor(function(*given))
        except WeaklinkError as error:
            return None, error.message
        except Exception as error:  # the user's function
            return None, f"it raised {type(error).__name__}: {str(error)[:200]}"
        return _flags(picked.detach().cpu(), max(count, length))


def _takes_targets(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is inspect.Parameter.empty for p in parameters) > 1


def _flags(picked: Tensor, rows: int) -> tuple[Tensor | None, str]:
    """Flags as they are; numbers of rows as flags."""
    if picked.dtype == torch.bool and picked.numel() == rows:
        return picked.flatten(), ""
    if not picked.is_floating_point() and picked.dtype != torch.bool and picked.dim() == 1:
        if bool(((picked < 0) | (picked >= rows)).any()):
            return None, f"it gives numbers of rows outside 0 .. {rows - 1}"
        flags = torch.zeros(rows, dtype=torch.bool)
        flags[picked.long()] = True
        return flags, ""
    shape, kind = list(picked.shape), str(picked.dtype).removeprefix("torch.")
    return None, f"it gives {kind} {shape}, neither one flag for each of {rows} rows nor numbers of rows"


def _row(label: str, examples: Examples, picked: Tensor) -> list[Value]:
    count, whole = int(picked.sum()), max(len(examples.losses), 1)
    if not count:
        return [label, 0, 0.0, None, None]
    right = float(examples.correct[picked].float().mean()) if examples.correct is not None else None
    return [label, count, count / whole, float(examples.losses[picked].double().mean()), right]
