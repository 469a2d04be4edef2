"""Which parameters were ever trainable at a step, where the user declared what is meant to be: a part may thaw late."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch.optim import Optimizer

from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part

# So many parameters are asked at a step that is not sampled, in turn: all of them within a few steps.
ASKED_IN_TURN = 8


@dataclass
class IntentRecord:
    """Serial numbers of the parameters that required a gradient when an optimizer stepped."""

    thawed: set[int] = field(default_factory=set)


class IntentPart(Part):
    """Asks every parameter at sampled steps and some in turn in between: sampled steps may all come too early."""

    _next = 0

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Note down which parameters are trainable."""
        declared = self.watcher.declared
        if not (declared.expected or declared.frozen):
            return
        entries, thawed = self.watcher.parameters.entries, self.tape.record(IntentRecord).thawed
        count = len(entries) if self.watcher.sampling else min(ASKED_IN_TURN, len(entries))
        for _ in range(count):
            self._next = (self._next + 1) % len(entries)
            asked = entries[self._next]
            tensor = asked.ref()
            if tensor is not None and tensor.requires_grad:
                thawed.add(asked.serial)
