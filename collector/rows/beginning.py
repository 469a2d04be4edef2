"""What a run would have become with a smaller rate, or without a state that its optimizer was given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, pstdev

from weaklink.collector.evidence import Row, Site, Value
from weaklink.collector.looking.beginning import fitted
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.beginning import LOOK, BeginningRecord, LoadedState
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.forwards import ForwardsRecord

ID = "UPDATE/state"
TEXT = "what the optimizer remembered before its first step"
# Where so many passes over the first batches are not enough with a state, and this many are without it, ten times as
# many steps are needed; nothing that a state is good for costs that.
EARLY_PASSES = 2
# A run shorter than this had no time to get anywhere with such a state.
LEAST_LOSSES = 40


@dataclass
class TooLarge:
    """A rate at which the run's first batches are not fitted, and the share of it at which they are.

    Attributes:
        rate: The highest of the first step.
        factor: The share that fits, in the run's order of batches and in the reverse one.
        dead: Weights that receive exactly zero in the end at the run's own rate, of so many `weights`.
        own: Loss of the last pass at the run's own rate; `smaller`: at the share; `constant`: of a constant output.
    """

    rate: float
    factor: float
    dead: int
    weights: int
    own: float
    smaller: float
    constant: float

    @property
    def text(self) -> str:
        why = f"{self.dead} of {self.weights} weights then receive exactly zero" if self.dead else "it ends above"
        return (
            f"taken again from the beginning, the first batches come to {self.own:.4g} at the run's own rate of "
            f"{self.rate:g}, no better than a constant output ({self.constant:.4g}; {why}), and to "
            f"{self.smaller:.4g} at {self.factor:g} of it"
        )


def too_large(run: Observation) -> TooLarge | None:
    """Whether the rate keeps the run from learning: none of the run's later losses is better than a constant output,
    nor is its beginning taken again; at a tenth or a hundredth of the rate that is.

    Only where the run's own rate never rose above that of its first step, and where its units died or its loss ended
    above its first one: a run that is merely slow or hard to learn shows neither.
    """
    look, seen = run.look(LOOK).values, run.record(ForwardsRecord).losses
    later = seen[len(seen) // 2 :]
    if look is None or len(seen) < 7 or not all(not loss < constant for _, loss, constant in later):
        return None
    arms, constant = look["arms"], look["constant"]
    steps = len(arms["1"]["passes"]) * len(arms["1"]["losses"])
    if run.tape.highest_rate > look["rate"] or run.tape.steps < steps:
        return None
    own = [arms[name] for name in ("1", "1 reversed") if name in arms]
    if len(own) < 2 or any(fitted(arm, constant) for arm in own):
        return None
    if not all(arm["dead"] or not arm["passes"][-1] < arm["losses"][0] for arm in own):
        return None
    for factor in (0.1, 0.01):
        smaller = [arms[name] for name in (f"{factor:g}", f"{factor:g} reversed") if name in arms]
        if len(smaller) == 2 and all(fitted(arm, constant) for arm in smaller):
            first, last = own[0], smaller[0]["passes"][-1]
            alive = min(arm["dead"] for arm in own) > max(arm["dead"] for arm in smaller)
            dead = first["dead"] if alive else 0
            return TooLarge(look["rate"], factor, dead, first["weights"], first["passes"][-1], last, constant)
    return None


def rows(run: Observation) -> list[Row]:
    """One row about a state that was there before the first step; none where no optimizer was given one."""
    record = run.record(BeginningRecord)
    if not record.loaded and not (record.load_sites and run.tape.steps):
        return []
    if not record.loaded:
        return [Row(id=ID, status="pass", text="something was loaded into an optimizer, and no state came of it")]
    state = record.loaded[0]
    text = _described(run, state)
    values: dict[str, Value] = {"tensors": state.tensors, "remembered": state.size, "gradient": state.gradient}
    found = _held_back(run)
    if found is None:
        return [Row(id=ID, status="evidence", text=text, values=values)]
    proven = _stands_still(run)
    return [
        Row(
            id=ID,
            status="fail" if proven else "suspected",
            basis="controlled" if proven else None,
            text=f"{text}; {found}",
            values=values,
            where=_sites(run, state),
            step=1,
        )
    ]


def _described(run: Observation, state: LoadedState) -> str:
    name = run.optimizers[state.optimizer].class_name
    text = f"{name} began with a state of {state.tensors} tensors"
    if state.counts is not None:
        low, high = state.counts
        text += f", of {low:g} steps" if low == high else f", of {low:g} to {high:g} steps"
    if state.size is not None and state.gradient:
        text += f"; the gradients it remembers are {state.size / state.gradient:.3g} times those of the first step"
    return text


def _held_back(run: Observation) -> str | None:
    """What the state costs: with it the first batches are not fitted in the time in which they are without it, and
    batches of later steps, seen by neither, have lower losses without it, beyond all that separates those with it.
    """
    look = run.look(LOOK).values
    if look is None or "cleared" not in look["arms"] or not len(look["later"]) > 1:
        return None
    with_state, cleared = look["arms"]["1"]["passes"], look["arms"]["cleared"]["passes"]
    early, lowest = cleared[EARLY_PASSES - 1], _lowest(with_state)
    if not early < lowest:
        return None
    for step, loss in look["later"].items():
        kept = [loss, *(look["arms"][name]["unseen"][step] for name in ("1", "1 reversed"))]
        if not look["arms"]["cleared"]["unseen"][step] < 2 * min(kept) - max(kept):
            return None
    batches, step = len(look["arms"]["1"]["losses"]), max(look["later"], key=int)
    return (
        f"taken again from the beginning, {len(with_state) * batches} steps come no lower than {lowest:.4g} with it; "
        f"with none, {EARLY_PASSES * batches} steps come to {early:.4g}, and the batch of step {step} to "
        f"{look['arms']['cleared']['unseen'][step]:.4g}, which the run had at {look['later'][step]:.4g}"
    )


def _stands_still(run: Observation) -> bool:
    """Whether the run in the end is, beyond its own spread, not where it gets in a few steps without the state."""
    look = run.look(LOOK).values
    losses = [loss for loss in run.tape.losses.value if math.isfinite(loss)]
    if look is None or len(losses) < LEAST_LOSSES:
        return False
    last = losses[-(len(losses) // 4) :]
    early: float = look["arms"]["cleared"]["passes"][EARLY_PASSES - 1]
    return fmean(last) - early > pstdev(last)


def _lowest(passes: list[float]) -> float:
    return min((loss for loss in passes if math.isfinite(loss)), default=math.inf)


def _sites(run: Observation, state: LoadedState) -> list[Site]:
    """The file that holds the state, or the line that loads it; then where the optimizer was built."""
    record, files = run.record(BeginningRecord), run.record(FilesRecord)
    built = run.optimizers[state.optimizer].built
    checkpoints = [file.place() for file in files.files if file.kind == "checkpoint"]
    return [*checkpoints[:1], *record.load_sites[:1], *([built] if built else [])][:3]
