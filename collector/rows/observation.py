"""What the rows are read from: the tape and the books of one finished (or broken off) run."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from weaklink.collector.declared import Declared, Examined, matches
from weaklink.collector.evidence import Site
from weaklink.collector.looks import Look
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.parameters import ParameterEntry, Place
from weaklink.collector.watching.tape import BackwardSample, Record, StepSample, Tape


@dataclass
class Observation:
    """One run, ready to be read. `net` is the movement since the first step by serial, where it was kept."""

    tape: Tape
    parameters: list[ParameterEntry]
    optimizers: list[OptimizerEntry]
    # Whether the script came to its own end: what it did not do yet, it might still have done otherwise.
    whole: bool = True
    raised: Site | None = None
    raised_text: str | None = None
    net: dict[int, float] = field(default_factory=dict)
    moved_by_hand: bool | None = None
    loose_moved: set[int] = field(default_factory=set)
    declared: Declared = field(default_factory=Declared)
    examined: Examined = field(default_factory=Examined)
    # The models were made before the hooks were there: nothing is known of when, and where from.
    in_process: bool = False
    # A whole system was handed over (a factory, a ledger): its model is meant to be trained by its optimizer.
    given: bool = False
    rule_declared: bool = False
    rule_problem: str | None = None

    def record(self, kind: type[Record]) -> Record:
        """What one part of the watcher wrote down."""
        return self.tape.record(kind)

    def look(self, name: str) -> Look:
        """What a look in a disposable copy showed; where it was not taken, its `problem` says why."""
        return self.tape.looks.get(name, Look(None, "it takes a run whose looks are allowed (`weaklink diagnose`)"))

    @property
    def backwards(self) -> Iterator[BackwardSample]:
        return (sample for window in self.tape.windows for sample in window.backwards)

    @property
    def steps(self) -> Iterator[StepSample]:
        return (sample for window in self.tape.windows for sample in window.steps)

    # A reading does not change once it is taken; ten thousand parameters are walked once for each of these.
    @functools.cached_property
    def _expected(self) -> list[ParameterEntry]:
        live = {serial for window in self.tape.windows if window.backwards for serial in window.live}
        named = [e for e in self.parameters if e.serial in live and e.name is not None]
        resting = [e for e in named if not matches(names_of(e), self.declared.frozen)]
        meant = [e for e in resting if matches(names_of(e), self.declared.expected)]
        # A pattern that means nothing in a script is said so in a row of its own; the run is read as if undeclared.
        if meant or (self.declared.expected and (self.given or self.in_process)):
            return meant
        return [e for e in resting if e.requires_grad]

    @functools.cached_property
    def _learning(self) -> list[ParameterEntry]:
        return [e for e in self._expected if e.reached or any(s != "missing" for s in e.states)]

    @functools.cached_property
    def _unowned(self) -> list[ParameterEntry]:
        return [e for e in self._learning if not e.owners and not self.moved(e)]

    def expected(self) -> list[ParameterEntry]:
        """What should train: what the user declared, else all that is trainable in a model that ran forward."""
        return self._expected

    def learning(self) -> list[ParameterEntry]:
        """Expected parameters that a loss reaches or that received a gradient."""
        return self._learning

    def unowned(self) -> list[ParameterEntry]:
        """Learning parameters that no optimizer ever held and that nothing else moved."""
        return self._unowned

    def namesakes(self, entry: ParameterEntry) -> list[ParameterEntry]:
        """Tensors an optimizer holds that stood where this one stands now: the same path of the same model object.

        Where the models were there first, no path of a replaced tensor is known: then any that an optimizer holds, that
        no model has and no loss reaches, and that is of the same shape and type, if all of those match the unowned
        parameters of a model that is trained one for one: another model, not used here, has other shapes.
        """
        by_place, by_shape = self._replaced
        found = {held.serial: held for place in entry.places for held in by_place.get(place, [])}
        if not found and self.in_process and entry.root in self.trained_roots:
            found = {held.serial: held for held in by_shape.get(_like(entry), [])}
        return list(found.values())

    @functools.cached_property
    def _replaced(
        self,
    ) -> tuple[dict[Place, list[ParameterEntry]], dict[tuple[tuple[int, ...], str], list[ParameterEntry]]]:
        by_place: dict[Place, list[ParameterEntry]] = {}
        by_shape: dict[tuple[tuple[int, ...], str], list[ParameterEntry]] = {}
        for held in self.parameters:
            if held.owners and not held.in_model:
                for place in held.places_at_optimizer:
                    by_place.setdefault(place, []).append(held)
                if held.is_parameter and not held.reached and held.order is None:
                    by_shape.setdefault(_like(held), []).append(held)
        missing = Counter(_like(entry) for entry in self.unowned())
        if missing != {kind: len(left) for kind, left in by_shape.items()}:
            by_shape.clear()
        return by_place, by_shape

    def no_step(self) -> str:
        """Why no optimizer step was seen."""
        return self.examined.why_not("UPDATE", "no optimizer step was executed")

    def moved(self, entry: ParameterEntry) -> bool | None:
        """Whether a sampled step moved it, or anything else over the dense window or between two samples.

        None where that was not measured. Some optimizers move at every eighth call only: then no sampled step shows
        it, but the norm before a later one does.
        """
        seen = [sample.moved[entry.serial] for sample in self.steps if entry.serial in sample.moved]
        before = [sample.before[entry.serial] for sample in self.steps if entry.serial in sample.before]
        lengths = {None if math.isnan(length) else length for length in before}
        return any(seen) or len(lengths) > 1 or self.net.get(entry.serial, 0.0) > 0.0 if seen else None

    @functools.cached_property
    def _trains_other_leaves(self) -> bool:
        return any(e.owners and not e.in_model and e.reached and self.moved(e) for e in self.parameters)

    @functools.cached_property
    def _trains_nothing(self) -> bool:
        if not self.tape.steps or any(e.owners for e in self.learning()):
            return False
        return not self._trains_other_leaves and not self._trains_by_hand

    @functools.cached_property
    def _trains_by_hand(self) -> bool:
        reached = {leaf for b in self.backwards if b.graph for leaf in b.graph.leaves}
        return any(
            moved and serial in sample.consumed and serial not in reached
            for sample in self.steps
            if sample.gradient_norm
            for serial, moved in sample.moved.items()
        )

    @functools.cached_property
    def trained_roots(self) -> set[int | None]:
        """Serial numbers of the models that ran in a sampled window and of which an optimizer holds something."""
        live = {serial for window in self.tape.windows for serial in window.live}
        return {self.by_serial(serial).root for serial in live if self.by_serial(serial).owners}

    def trains_other_leaves(self) -> bool:
        """Whether an optimizer moves something that a loss reaches outside the models: an input, a prompt, a style."""
        return self._trains_other_leaves

    def trains_by_hand(self) -> bool:
        """Whether an optimizer moves, by a gradient, what no sampled loss reaches: the script hands gradients over.

        First-order meta-learning and averaging over replicas do: backward runs on copies, the original is stepped.
        """
        return self._trains_by_hand

    def trains_nothing(self) -> bool:
        """Whether the optimizers stepped, and hold nothing at all that any loss reaches."""
        return self._trains_nothing

    def stays_nonfinite(self) -> bool:
        """Whether the last loss is not finite: one overflow that the script stepped over is no divergence."""
        values = self.tape.losses.value
        return bool(values) and not math.isfinite(values[-1])

    def outgrown_steps(self) -> list[StepSample]:
        """Sampled steps that moved the learning parameters by more than their norm, before a loss turned non-finite."""
        onset = self.tape.first_nonfinite_step
        if onset is None or not self.stays_nonfinite():
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


def names_of(entry: ParameterEntry) -> list[str]:
    """What a declaration may call it: its name in the chain, its path from the outermost module that it hangs in."""
    return [name for name in dict.fromkeys([entry.name, *sorted(path for path, _ in entry.places)]) if name]


def names(entries: list[ParameterEntry], limit: int = 6) -> str:
    """Comma-separated names, the rest counted."""
    shown = [entry.name or "an unnamed tensor" for entry in entries[:limit]]
    rest = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _like(entry: ParameterEntry) -> tuple[tuple[int, ...], str]:
    """What a tensor has in common with the one that takes its place: a new head may have another number of outputs."""
    return (len(entry.shape), *entry.shape[1:]), entry.dtype
