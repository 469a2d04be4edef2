"""Where a gradient dies: modules whose gradient is exactly zero, and the operation that makes it so.

Which modules those are shows in the gradients that arrive. Why takes a backward of our own, with a hook on every node
of the graph: a look in a disposable copy of the run, taken right before the run's own backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from weaklink.collector.watching.gradient_path import examine
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.stacks import OperationStacks
from weaklink.collector.watching.tape import BackwardSample, Window

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

LOOK = "gradient path"
# Zero once is by design in many a model (a factor that starts at zero): asked is after as many samples in a row.
SAMPLES_IN_A_ROW = 2
# The set of dead modules may change at every step where experts take turns.
LOOKS_LIMIT = 4


@dataclass
class Arrival:
    """What a parameter received in one sampled backward whose graph it was part of."""

    step: int
    zero: bool
    loss: float | None


def arrivals(windows: list[Window]) -> dict[int, list[Arrival]]:
    """What each parameter received, by its serial number and in order."""
    found: dict[int, list[Arrival]] = {}
    for window in windows:
        for sample in window.backwards:
            reached = sample.graph.leaves if sample.graph is not None else set()
            for serial, (state, _) in sample.gradients.items():
                if serial in reached and state != "missing":
                    found.setdefault(serial, []).append(Arrival(window.step, state == "zero", sample.loss))
    return found


class DeadGradients(Part):
    """Follows which whole modules receive exactly zero, and looks for the reason once they do."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._asked_for: frozenset[int] = frozenset()
        self._asked = 0
        self._due = False

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """The graph is still there: look, where the last sampled backward gave a reason to."""
        if sample is None or sample.graph is None or not self._due or not self._asked_for & sample.graph.leaves:
            return
        self._due = False
        self.watcher.looks.take(LOOK, self._look(losses))

    def _look(self, losses: list[Tensor]) -> Callable[[], dict[str, Any]]:
        dead, parameters, code = self._asked_for, self.watcher.parameters, self.watcher.code
        return lambda: examine(losses, dead, parameters, code)

    def backward_ended(self, sample: BackwardSample | None) -> None:
        """Ask for stacks in the next window where a whole module was given nothing, and again."""
        if sample is None or self._asked >= LOOKS_LIMIT or not any(s == "zero" for s, _ in sample.gradients.values()):
            return
        received = arrivals(self.tape.windows)
        zero = {serial for serial, seen in received.items() if trailing_zeros(seen) >= SAMPLES_IN_A_ROW}
        entries = [self.watcher.parameters.entries[serial] for serial in received]
        dead = frozenset(entry.serial for entry in [*whole_modules(entries, zero), *matrices(entries, zero)])
        if dead and dead != self._asked_for:
            self._asked_for, self._due = dead, True
            self._asked += 1
            for part in self.watcher.parts:
                if isinstance(part, OperationStacks):
                    part.want_next()


def trailing_zeros(seen: list[Arrival]) -> int:
    """How many of the last samples gave exactly zero, up to the end; none counts whose loss was zero itself."""
    count = 0
    for arrival in reversed(seen):
        if not arrival.zero or arrival.loss == 0.0:
            break
        count += 1
    return count


def whole_modules(entries: list[ParameterEntry], zero: set[int]) -> list[ParameterEntry]:
    """Parameters among the zero ones whose module has none that is not: a bias alone is excused."""
    live = {module_of(entry) for entry in entries if entry.serial not in zero}
    return [entry for entry in entries if entry.serial in zero and module_of(entry) not in live]


def matrices(entries: list[ParameterEntry], zero: set[int]) -> list[ParameterEntry]:
    """The zero ones of two dimensions and more, whatever else their modules hold: factors beside a bias that learns."""
    return [entry for entry in entries if entry.serial in zero and len(entry.shape) > 1]


def module_of(entry: ParameterEntry) -> str:
    """Path of the module that holds a parameter."""
    return (entry.name or "").rpartition(".")[0]
