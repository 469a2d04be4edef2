"""Running an attempt for its numbers: the unmodified script, once a seed, every step written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weaklink.agent.runner import HASH_SEED, OFFLINE_HUBS, OFFLINE_TRACKERS
from weaklink.collector.errors import SubjectError
from weaklink.collector.evidence import Evidence, Subject, read_evidence
from weaklink.collector.job import Job, Pins
from weaklink.collector.scratch import Scratch
from weaklink.collector.step_values import RECORDED, StepValues
from weaklink.collector.workers import Workers, base_environment


@dataclass(frozen=True)
class RecordedRun:
    """One run: the loss of each backward call in order, and the values of each step."""

    seed: int
    losses: list[float]
    values: StepValues

    @property
    def body(self) -> dict[str, object]:
        """What a digest is taken of."""
        return {"seed": self.seed, "losses": self.losses, "values": self.values.model_dump(mode="python")}


def record_runs(script: str, seeds: Sequence[int], folder: Path, python: str, deadline: float) -> list[RecordedRun]:
    """Run the script with each seed as its one argument, offline, each run in a fresh copy of the folder.

    Raises:
        SubjectError: A run does not come to its end, or is too large to be written down.
        KeyboardInterrupt: The user stopped a run.
    """
    scratch = Scratch(folder)
    try:
        with Workers(python, base_environment(HASH_SEED)) as workers:
            return [_record(script, seed, scratch, workers, deadline) for seed in seeds]
    finally:
        scratch.close()


def _record(script: str, seed: int, scratch: Scratch, workers: Workers, deadline: float) -> RecordedRun:
    scratch.lay()
    evidence = scratch.base / f"record{seed}.evidence.json"
    job = Job(
        role="record",
        subject=Subject(kind="script", name=script, argv=[str(seed)]),
        folder=scratch.folder,
        evidence=evidence,
        deadline=deadline,
        record_values=True,
        pins=Pins(hash=HASH_SEED),
        guard=scratch.guard,
        environment={**OFFLINE_TRACKERS, **OFFLINE_HUBS, "TMPDIR": str(scratch.temporary)},
    )
    try:
        result = workers.run(job, scratch.base / f"record{seed}.log")
    finally:
        scratch.settle()
    if result.interrupted:
        raise KeyboardInterrupt
    seen = read_evidence(evidence) if evidence.exists() else None
    written = evidence.with_name(RECORDED)
    values = StepValues.model_validate_json(written.read_text("utf-8")) if written.exists() else None
    problem = _problem(seen, values)
    if problem is not None or seen is None or values is None:
        raise SubjectError("The run cannot be compared.", about=f"{script} {seed}", hint=f"{problem}.")
    written.unlink()
    return RecordedRun(seed, list(seen.losses.value), values)


def _problem(seen: Evidence | None, values: StepValues | None) -> str | None:
    if seen is None or values is None:
        return "it left nothing to compare"
    if seen.outcome.raised is not None:
        return f"it raised {seen.outcome.raised.type}"
    if seen.outcome.ended != "completed":
        return f"it ended otherwise: {seen.outcome.ended}"
    return values.problem
