"""One side of a recovery: its subject run whole from several random starts, and what each run showed of the row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from weaklink.agent.close_up import closer
from weaklink.agent.progress import Progress
from weaklink.agent.record.recoveries import RecoveryRun, Side, UsedMetric
from weaklink.agent.recovery.metric import read_metric
from weaklink.agent.runner import Runner
from weaklink.collector.declared import Intent
from weaklink.collector.errors import SubjectError
from weaklink.collector.evidence import DIVERGING, Evidence, SourceFile, Subject, in_chain_order
from weaklink.collector.job import JobResult


@dataclass(frozen=True)
class Place:
    """What is run and where. `rule` is named as this folder sees it."""

    side: Side
    subject: Subject
    folder: Path
    rule: str | None = None


@dataclass(frozen=True)
class Watching:
    """How every run of both sides is watched: as the incident's own was. `deadline` is in seconds a run."""

    row: str
    seeds: list[int]
    metric: UsedMetric | None
    python: str
    deadline: float
    logs: Path
    incidents: Path
    task: str | None = None
    user_code: tuple[str, ...] = ()
    intent: Intent = field(default_factory=Intent)


@dataclass
class SideRuns:
    """The runs of one side, in the order of their seeds, and the sources of the first."""

    runs: list[RecoveryRun] = field(default_factory=list)
    sources: list[SourceFile] = field(default_factory=list)


def run_side(place: Place, watching: Watching, progress: Progress) -> SideRuns:
    """Run one side on every seed.

    Raises:
        KeyboardInterrupt: The user stopped a run.
        WeaklinkError: The folder cannot be copied, or there is no such interpreter.
    """
    found = SideRuns()
    with _runner(place, watching, progress) as runner:
        for seed in watching.seeds:
            progress.say(f"recover  {place.side}, seed {seed}")
            runner.pins = runner.pins.model_copy(update={"offset": seed})
            run, evidence = _one(place, watching, runner, seed)
            found.runs.append(run)
            if seed == watching.seeds[0] and evidence is not None:
                found.sources = evidence.sources
    return found


@contextlib.contextmanager
def _runner(place: Place, watching: Watching, progress: Progress) -> Iterator[Runner]:
    logs = watching.logs / place.side
    logs.mkdir(parents=True, exist_ok=True)
    with Runner(
        place.subject,
        place.folder,
        watching.python,
        logs,
        watching.deadline,
        progress,
        watching.task,
        watching.user_code,
        watching.incidents,
        place.rule,
        intent=watching.intent,
    ) as runner:
        yield runner


def _one(place: Place, watching: Watching, runner: Runner, seed: int) -> tuple[RecoveryRun, Evidence | None]:
    logs = watching.logs / place.side
    log = logs / "observe.log"
    try:
        record = runner.observe()
    except SubjectError as error:  # it left nothing behind: no run to compare, and the other seeds may go better
        return RecoveryRun(side=place.side, seed=seed, ended=None, problem=error.message), None
    if record.evidence is None or record.result.interrupted:
        raise KeyboardInterrupt
    printed = _printed(log, record.result)
    log.replace(logs / f"seed{seed}.log")
    evidence, interrupted = closer(runner, record.evidence)
    if interrupted:
        raise KeyboardInterrupt
    metric = None if watching.metric is None else read_metric(printed, watching.metric.name)
    return read_run(place.side, seed, watching.row, evidence, record.result, metric, record.problem), evidence


def read_run(
    side: Side,
    seed: int,
    row_id: str,
    evidence: Evidence,
    result: JobResult,
    metric: float | None,
    problem: str | None = None,
) -> RecoveryRun:
    """What one run showed, as it is recorded."""
    row, first = evidence.row(row_id), evidence.first_divergence
    return RecoveryRun(
        side=side,
        seed=seed,
        ended=evidence.outcome.ended,
        exit_code=evidence.outcome.exit_code,
        raised=evidence.outcome.raised,
        problem=problem,
        row=row.status if row is not None else "absent",
        reason=row.reason if row is not None else None,
        rows={row.id: row.status for row in in_chain_order(evidence.rows)},
        first_divergence=first.id if first is not None else None,
        metric=metric,
        loss_last=evidence.losses.value[-1] if evidence.losses.value else None,
        output_sha256=result.output_sha256,
        seconds=round(result.seconds, 3),
    )


def compare(row_id: str, baseline: list[RecoveryRun], repair: list[RecoveryRun]) -> None:
    """Note in each run of the repair which rows before the incident's own fail there and not in the baseline's."""
    for before, after in zip(baseline, repair, strict=True):
        order = list(after.rows)
        earlier = order[: order.index(row_id)] if row_id in after.rows else order
        after.newly_failing = [
            name for name in earlier if after.rows[name] == "fail" and before.rows.get(name) not in DIVERGING
        ]


def _printed(log: Path, result: JobResult) -> str:
    """All that is known of a run's output: the log holds its beginning, the result its end."""
    try:
        kept = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        kept = ""
    return kept if len(kept.encode()) >= result.output_bytes else f"{kept}\n{result.output_tail}"
