"""Watches parameters of 16-bit types: whether a step that float32 would show arrives in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.looking.float32_steps import LOW, compare, low_precision
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part

# Looks at two moments: the first steps of a run say little about the later ones.
MOMENTS = (2, 10)


@dataclass
class PrecisionRecord:
    """The looks that were asked for, in order, and the lines that gave parameters their type."""

    looks: list[tuple[int, str]] = field(default_factory=list)
    casts: list[Site] = field(default_factory=list)


class PrecisionPart(Part):
    """Asks for a look where an optimizer holds 16-bit parameters itself."""

    def install(self) -> None:
        """See which line casts a model."""
        for name in ("to", "half", "bfloat16"):
            self.watcher.wrap(nn.Module, name, self._cast)

    @unseen_by_warnings
    def _cast(self, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        self.watcher.guarded(self._note_cast)(module)
        return result

    def _note_cast(self, module: nn.Module) -> None:
        record = self.tape.record(PrecisionRecord)
        first = next(module.parameters(), None)
        site = self.watcher.code.site("parameters cast") if first is not None and first.dtype in LOW else None
        if site is not None and len(record.casts) < 4:
            record.casts.append(site)

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """At two moments, for each optimizer that holds such parameters, let a copy take the step twice."""
        step = self.tape.steps + 1
        record = self.tape.record(PrecisionRecord)
        if not self.watcher.sampling or sum(step >= moment for moment in MOMENTS) <= len(record.looks):
            return
        if low_precision(optimizer):
            name = f"float32 steps at {step}"
            record.looks.append((step, name))
            self.watcher.looks.take(name, lambda: compare(optimizer))
