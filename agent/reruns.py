"""The reruns of one experiment at one horizon: two controls, a placebo, the treatment. Each is recorded as it ends."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from weaklink.agent.horizons import Horizon, Means
from weaklink.agent.proposal import ExperimentChoice
from weaklink.agent.record.bodies import RerunFinished, RerunStarted
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.runner import Runner, RunRecord
from weaklink.collector.evidence import Evidence, Value
from weaklink.collector.job import Role

PLACEBO = "placebo"


class RerunInterruptedError(Exception):
    """The user stopped a rerun; `role` says which. What had been recorded stands."""

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.role = role


@dataclass(frozen=True)
class Plan:
    """One rerun: its role, its intervention with parameters, and what it measures besides watching."""

    role: Role
    intervention: str | None
    parameters: dict[str, Value]
    means: Means


def planned(choice: ExperimentChoice, means: Means) -> list[Plan]:
    """The four reruns, in order. Of the placebo only numbers count, which take no more than watching."""
    return [
        Plan("control", None, {}, means),
        Plan("control_again", None, {}, means),
        Plan("placebo", PLACEBO, {}, Means()),
        Plan("treatment", choice.name, choice.parameters, means),
    ]


class Recorder:
    """Runs what is planned, side by side where there is room, and writes each start and each end to the record."""

    def __init__(self, runner: Runner, writer: RecordWriter, observed: Evidence) -> None:
        self._runner, self._writer, self._observed = runner, writer, observed
        self._together = runner.has_room_beside(observed)
        # Files that one of the last reruns read and that are not what the observed run had read.
        self.contaminated: list[str] = []

    def batches(self, plans: list[Plan]) -> list[list[Plan]]:
        """What runs at once: two reruns where there is room for two, in the order of the plan."""
        size = 2 if self._together else 1
        return [plans[start : start + size] for start in range(0, len(plans), size)]

    def run(self, plans: list[Plan], horizon: Horizon) -> dict[str, Evidence | None]:
        """One or two reruns at once; by role, None where one left no evidence. Recorded in the order of the plan.

        Raises:
            RerunInterruptedError: The user stopped one; every end is recorded.
            WeaklinkError: One could not be started, or its folder could not be laid.
        """
        for plan in plans:
            started = {"role": plan.role, "intervention": plan.intervention, "parameters": plan.parameters}
            self._writer.append("rerun.started", RerunStarted.model_validate({**started, "horizon": horizon}))
        records = self._at_once(plans, horizon)
        for plan, record in zip(plans, records, strict=True):
            self._writer.append("rerun.finished", finished(plan.role, record))
        self.contaminated = [name for record in records for name in record.changed_inputs]
        for plan, record in zip(plans, records, strict=True):
            if record.result.interrupted:
                raise RerunInterruptedError(plan.role)
        return {plan.role: record.evidence for plan, record in zip(plans, records, strict=True)}

    def _at_once(self, plans: list[Plan], horizon: Horizon) -> list[RunRecord]:
        first, *others = plans
        if not others:
            return [self._one(first, horizon, None)]
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(self._one, others[0], horizon, stop)
            try:
                here = self._one(first, horizon, None)
                if here.result.interrupted:
                    stop.set()
                there = beside.result()
            except BaseException:  # Ctrl-C while waiting for the other one: it is told, and waited for
                stop.set()
                raise
        # Two at once may need more memory than there is: what the system killed gets another run, alone.
        records = [here, there]
        return [
            self._one(plan, horizon, None) if record.result.signal == signal.SIGKILL and not _late(record) else record
            for plan, record in zip(plans, records, strict=True)
        ]

    def _one(self, plan: Plan, horizon: Horizon, beside: threading.Event | None) -> RunRecord:
        return self._runner.rerun(
            plan.role, self._observed, horizon, plan.intervention, plan.parameters, plan.means, beside
        )


def _late(record: RunRecord) -> bool:
    return record.result.deadline_hit or record.result.interrupted


def finished(role: str, record: RunRecord) -> RerunFinished:
    """What is recorded of a rerun that ended."""
    return RerunFinished.model_validate(
        {
            "role": role,
            "evidence": record.evidence,
            "problem": record.problem,
            "seconds": round(record.result.seconds, 3),
            "output_sha256": record.result.output_sha256,
            "files_written": record.files_written,
            "changed_inputs": record.changed_inputs,
        }
    )
