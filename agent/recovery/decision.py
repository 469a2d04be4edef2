"""What the runs of both sides decide. The incident's own row decides; a better metric alone recovers nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from weaklink.agent.record.recoveries import RecoveryRun, Side, UsedMetric
from weaklink.agent.verdict import Recovery
from weaklink.collector.evidence import DIVERGING

# Three seeds a side keep apart by chance in one of twenty comparisons, whether by their row or by a metric.
CHANCE = 1 / 20
FEWEST_SEEDS = 3
PASSES = ("pass", "evidence")
# A chain holds these only where it finds what they tell of: a repair that ran to its end without them passes.
ONLY_WHERE_FOUND = ("OBJECTIVE/reduction", "OBJECTIVE/broadcast", "DEPENDENCY/carried", "GRADIENT/origin")

ALWAYS = (
    "Objective: that the loss is the goal you meant.",
    "Checkpoint: that weights saved before the repair are sound.",
    "Recurrence: that the fault stays away on other data, seeds, devices or longer runs.",
)


@dataclass(frozen=True)
class Decision:
    """The verdict, the sentences that carry it, and what it leaves open."""

    recovery: Recovery
    reasons: list[str]
    limits: list[str]


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value of a metric over the seeds; what is not finite is the worst there is."""

    low: float
    high: float


def decide(row: str, runs: Sequence[RecoveryRun], metric: UsedMetric | None, changed: Sequence[str] = ()) -> Decision:
    """Judge a repair.

    Args:
        row: The incident's first divergence. It passes where it is measured and neither fails nor is suspected.
        runs: Both sides, as many seeds of one as of the other.
        metric: What was declared; None: nothing is said about how well it learns.
        changed: Files of the baseline that are no longer what they were.
    """
    return _Judgement(row, runs, metric, list(changed)).decision()


def metric_range(runs: Sequence[RecoveryRun], side: Side, metric: UsedMetric) -> Range | None:
    """The range of the metric over the seeds of one side; None where a run did not show it."""
    read = [run.metric for run in runs if run.side == side]
    values = [_worst(metric) if math.isnan(value) else value for value in read if value is not None]
    return Range(min(values), max(values)) if values and len(values) == len(read) else None


def separated(runs: Sequence[RecoveryRun], metric: UsedMetric) -> bool | None:
    """Whether every seed of the repair is better than every seed of the baseline; None where it was not measured."""
    before, after = metric_range(runs, "baseline", metric), metric_range(runs, "repair", metric)
    if before is None or after is None:
        return None
    return after.low > before.high if metric.direction == "max" else after.high < before.low


def by_chance(shown: int, seeds: int) -> float:
    """How often chance alone would put all runs that diverge into the baseline: `shown` of its `seeds`."""
    return comb(seeds, shown) / comb(2 * seeds, shown)


def _enough(shown: int, seeds: int) -> int:
    """Seeds a side that would tell, if the baseline goes on showing its row as often."""
    found = seeds + 1
    while by_chance(found * shown // seeds, found) > CHANCE:
        found += 1
    return found


def _worst(metric: UsedMetric) -> float:
    return -math.inf if metric.direction == "max" else math.inf


class _Judgement:
    def __init__(self, row: str, runs: Sequence[RecoveryRun], metric: UsedMetric | None, changed: list[str]) -> None:
        self._row, self._runs, self._metric, self._changed = row, runs, metric, changed
        self._before = [run for run in runs if run.side == "baseline"]
        self._after = [run for run in runs if run.side == "repair"]
        self._better = None if metric is None else separated(runs, metric)

    def decision(self) -> Decision:
        for attempt in (self._baseline, self._ended, self._rows, self._learns):
            if (found := attempt()) is not None:
                return Decision(found[0], found[1], self._limits())
        return Decision("recovered (bounded)", self._recovered(), self._limits())

    def _baseline(self) -> tuple[Recovery, list[str]] | None:
        """A baseline that cannot be run as it was, or does not show its row, is nothing to compare with."""
        if self._changed:
            return "inconclusive", [f"The baseline changed since the diagnosis: {_named(self._changed)}."]
        first = self._before[0]
        if first.row not in DIVERGING:
            return "inconclusive", [f"The baseline does not show {self._row} again: {_found(first)}."]
        return None

    def _ended(self) -> tuple[Recovery, list[str]] | None:
        """A repair that does not run to its end is none; one that nobody could watch is not judged."""
        for run, other in zip(self._after, self._before, strict=True):
            if run.raised is not None:
                where = f" at {run.raised.where.place}" if run.raised.where else ""
                return self._no([f"The repair raises {run.raised.type}{where} on seed {run.seed}."])
            if run.exit_code not in (None, 0, other.exit_code):
                return self._no([f"The repair leaves with exit code {run.exit_code} on seed {run.seed}."])
        if self._of(DIVERGING):
            return None
        for run, other in zip(self._after, self._before, strict=True):
            if run.problem is not None:
                return "inconclusive", [f"On seed {run.seed} the repair left nothing to judge: {run.problem}."]
            if run.ended in ("deadline", "killed") and run.ended != other.ended:
                return "inconclusive", [f"On seed {run.seed} the repair did not get to its end ({run.ended})."]
        return None

    def _rows(self) -> tuple[Recovery, list[str]] | None:
        if still := self._of(DIVERGING):
            return self._no([f"{self._row} still diverges on {_seeds(still)} of the repair."])
        if wanting := [run for run in self._after if not self._passes(run)]:
            text = f"{self._row} is not measured on {_seeds(wanting)} of the repair: {_found(wanting[0])}."
            return "inconclusive", [text, "What is not measured does not pass."]
        if broken := [run for run in self._after if run.newly_failing]:
            names = _named(sorted({name for run in broken for name in run.newly_failing}))
            return "incomplete", [f"{self._row} passes, but before it {names} newly fails on {_seeds(broken)}."]
        return None

    def _passes(self, run: RecoveryRun) -> bool:
        told_where_found = self._row in ONLY_WHERE_FOUND or self._row.endswith("/raised")
        gone = run.row == "absent" and told_where_found and run.raised is None and run.ended in ("completed", "exited")
        return gone or run.row in PASSES

    def _learns(self) -> tuple[Recovery, list[str]] | None:
        shown, of = sum(run.row in DIVERGING for run in self._before), len(self._before)
        if by_chance(shown, of) > CHANCE and not self._better:
            text = f"The baseline itself shows {self._row} on {shown} of {of} seeds: that the repair does not show it"
            return "inconclusive", [f"{text} may be chance. More seeds can tell (--seeds {_enough(shown, of)})."]
        if self._metric is None or self._better:
            return None
        if self._better is None:
            text = f"{self._row} passes, but {self._metric.name} was not found in what every run printed."
            return "inconclusive", [text]
        ranges = self._ranges(self._metric)
        return "incomplete", [f"{self._row} passes, but {self._metric.name} is not better: {ranges}."]

    def _recovered(self) -> list[str]:
        seeds = _seeds(self._after)
        texts = [f"{self._row} passes on {seeds} of the repair and diverges in the baseline."]
        texts.append("No row before it newly fails.")
        if self._metric is not None:
            texts.append(f"{self._metric.name} is better on every seed: {self._ranges(self._metric)}.")
        return texts

    def _no(self, reasons: list[str]) -> tuple[Recovery, list[str]]:
        """The cause remains; that a number got better is told, because that is how such repairs pass for good ones."""
        if self._metric is not None and self._better and not any(run.raised for run in self._after):
            text = f"The metric is better, the cause remains: {self._metric.name} {self._ranges(self._metric)}."
            return "incomplete", [text, *reasons]
        return "not recovered", reasons

    def _of(self, statuses: tuple[str, ...]) -> list[RecoveryRun]:
        return [run for run in self._after if run.row in statuses]

    def _ranges(self, metric: UsedMetric) -> str:
        before, after = metric_range(self._runs, "baseline", metric), metric_range(self._runs, "repair", metric)
        assert before is not None
        assert after is not None
        return (
            f"{after.low:.6g} to {after.high:.6g} repaired, {before.low:.6g} to {before.high:.6g} before "
            f"({'more' if metric.direction == 'max' else 'less'} is better)"
        )

    def _limits(self) -> list[str]:
        found = []
        if self._metric is None:
            found.append("Metric: no metric was declared: nothing is said about how well it learns.")
        elif self._better is None:
            found.append(f"Metric: {self._metric.name} was not measured on every seed: nothing is said about it.")
        if self._changed:
            found.append(f"Baseline: it is not what was diagnosed: {_named(self._changed)}.")
        now = sorted({run.first_divergence for run in self._after if run.first_divergence not in (None, self._row)})
        if now:
            found.append(f"Other rows: the repaired run diverges at {_named([str(name) for name in now])}.")
        if any(run.row == "evidence" for run in self._after):
            found.append(f"Row: {self._row} gives a number there, and no row says that it is right.")
        if any(run.row == "absent" for run in self._after) and not self._of(DIVERGING):
            found.append(f"Row: {self._row} is told only where it is found, and the repaired runs have none.")
        found.append("Seeds: generators that the script seeds by itself (its data, often) began alike in every run.")
        return [*found, *ALWAYS]


def _found(run: RecoveryRun) -> str:
    if run.problem is not None:
        return run.problem
    if run.row == "absent":
        return f"its chain has no such row on seed {run.seed}"
    return f"{run.row.replace('_', ' ')} on seed {run.seed}" + (f" ({run.reason})" if run.reason else "")


def _seeds(runs: Sequence[RecoveryRun]) -> str:
    numbers = [str(run.seed) for run in runs]
    return f"seed {numbers[0]}" if len(numbers) == 1 else f"seeds {', '.join(numbers)}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
