"""Layers all of whose units are one and the same, and which are used alike by the next layer.

Units with equal weights that enter the next layer with equal weights receive equal gradients, for good: a layer that
begins so stays one unit wide, however often it is stepped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import is_traced, unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# Larger weights are left alone, and as many lines that fill tensors are remembered.
ENTRIES = 4_000_000
FILLS = 4096
_FILLS = ("constant_", "ones_", "zeros_")


@dataclass
class EqualUnitsRecord:
    """Weights by serial number.

    Attributes:
        units: How many samples found all units (rows) of it equal and not zero, after a step.
        uses: How many found all its inputs (columns) used alike.
        samples: Samples of it in all.
        filled: The line that filled it with one value before the training.
    """

    units: dict[int, int] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)
    filled: dict[int, Site] = field(default_factory=dict)


class EqualUnits(Part):
    """Looks at the weights after sampled steps; once a weight's units differ, it is not looked at again."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(EqualUnitsRecord)
        self._fills: dict[tuple[int, int], Site] = {}

    def install(self) -> None:
        """Hear which lines fill tensors with one value."""
        for name in _FILLS:
            self.watcher.wrap(nn.init, name, self._filled)
        self.watcher.wrap(Tensor, "fill_", self._filled)

    @unseen_by_warnings
    def _filled(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not self.tape.backwards and not is_traced() and len(self._fills) < FILLS:
            self.watcher.guarded(self._note_fill)(args[0] if args else kwargs.get("tensor"))
        return result

    def _note_fill(self, tensor: Any) -> None:
        if isinstance(tensor, Tensor) and tensor.dim() > 1 and not tensor.is_meta:
            site = self.watcher.code.site("filled with one value")
            if site is not None:
                self._fills[tensor.data_ptr(), tensor.numel()] = site

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """Compare the units of what was stepped."""
        if sample is None:
            return
        held = set(entry.held)
        for known, tensor in self.watcher.parameters.alive():
            if known.serial in held and known.in_model and _is_weight(tensor):
                self._compare(known.serial, tensor)

    def _compare(self, serial: int, tensor: Tensor) -> None:
        record = self.record
        seen = record.samples.get(serial, 0)
        units, uses = record.units.get(serial, 0), record.uses.get(serial, 0)
        if seen and seen > max(units, uses):
            return
        with torch.no_grad():
            weights = tensor.detach().flatten(2) if tensor.dim() > 2 else tensor.detach()
            if units == seen and bool((weights == weights[:1]).all()) and bool(weights.any()):
                record.units[serial] = units + 1
            if uses == seen and bool((weights == weights[:, :1]).all()) and bool(weights.any()):
                record.uses[serial] = uses + 1
        record.samples[serial] = seen + 1
        if not seen and (site := self._fills.get((tensor.data_ptr(), tensor.numel()))) is not None:
            record.filled[serial] = site


def _is_weight(tensor: Tensor) -> bool:
    """Whether it has several units with several inputs each."""
    if type(tensor) is not nn.Parameter or tensor.layout != torch.strided or not tensor.is_floating_point():
        return False
    return 1 < tensor.dim() < 6 and min(tensor.shape[:2]) > 1 and tensor.numel() <= ENTRIES and not tensor.is_meta
