"""What the rows are read from: the tape and the books of one finished (or broken off) run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from weaklink.collector.evidence import Site
from weaklink.collector.watch.optimizers import OptimizerEntry
from weaklink.collector.watch.parameters import ParameterEntry
from weaklink.collector.watch.tape import BackwardSample, StepSample, Tape


@dataclass
class Observation:
    """One run, ready to be read. `net` is the movement since the first step by serial, where it was kept."""

    tape: Tape
    parameters: list[ParameterEntry]
    optimizers: list[OptimizerEntry]
    task: str | None = None
    # Whether the script came to its own end: what it did not do yet, it might still have done otherwise.
    whole: bool = True
    raised: Site | None = None
    raised_text: str | None = None
    net: dict[int, float] = field(default_factory=dict)
    moved_by_hand: bool | None = None
    loose_moved: set[int] = field(default_factory=set)

    @property
    def backwards(self) -> Iterator[BackwardSample]:
        return (sample for window in self.tape.windows for sample in window.backwards)

    @property
    def steps(self) -> Iterator[StepSample]:
        return (sample for window in self.tape.windows for sample in window.steps)

    def expected(self) -> list[ParameterEntry]:
        """What should train as far as nobody declared otherwise: trainable, and part of a model that ran forward."""
        live = {serial for window in self.tape.windows if window.backwards for serial in window.live}
        return [e for e in self.parameters if e.serial in live and e.requires_grad and e.name is not None]

    def learning(self) -> list[ParameterEntry]:
        """Expected parameters that a loss reaches or that received a gradient."""
        return [e for e in self.expected() if e.reached or any(s != "missing" for s in e.states)]

    def unowned(self) -> list[ParameterEntry]:
        """Learning parameters that no optimizer ever held and that nothing else moved."""
        return [e for e in self.learning() if not e.owners and not self.moved(e)]

    def moved(self, entry: ParameterEntry) -> bool | None:
        """Whether a sampled step moved it, or anything else over the dense window; None where that was not measured."""
        seen = [sample.moved[entry.serial] for sample in self.steps if entry.serial in sample.moved]
        return any(seen) or self.net.get(entry.serial, 0.0) > 0.0 if seen else None

    def trains_other_leaves(self) -> bool:
        """Whether an optimizer moves something that a loss reaches outside the models: an input, a prompt, a style."""
        return any(e.owners and not e.in_model and e.reached and self.moved(e) for e in self.parameters)

    def trains_nothing(self) -> bool:
        """Whether the optimizers stepped, and hold nothing at all that any loss reaches."""
        return self.tape.steps > 0 and not any(e.owners for e in self.learning()) and not self.trains_other_leaves()

    def outgrown_steps(self) -> list[StepSample]:
        """Sampled steps that moved the learning parameters by more than their norm, before a loss turned non-finite."""
        onset = self.tape.first_nonfinite_step
        if onset is None:
            return []
        learning = [entry.serial for entry in self.learning()]
        before = [sample for sample in self.steps if sample.step < onset]
        return [s for s in before if joint(s.delta, learning) > joint(s.before, learning) > 0.0]

    def reaches_other_leaves(self) -> bool:
        """Whether a loss reaches leaves that are no parameters: inputs whose gradient the script wants."""
        leaves = {leaf for b in self.backwards if b.graph for leaf in b.graph.leaves}
        return any(not self.by_serial(leaf).is_parameter for leaf in leaves)

    def by_serial(self, serial: int) -> ParameterEntry:
        return self.parameters[serial]


def joint(values: dict[int, float], serials: list[int]) -> float:
    """Euclidean norm over several tensors, from the norm of each."""
    return math.hypot(*(values[serial] for serial in serials if serial in values))


def names(entries: list[ParameterEntry], limit: int = 6) -> str:
    """Comma-separated names, the rest counted."""
    shown = [entry.name or "an unnamed tensor" for entry in entries[:limit]]
    rest = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
