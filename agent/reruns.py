"""The reruns of one experiment at one horizon: two controls, a placebo, the treatment. Each is recorded as it ends."""

from __future__ import annotations

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
    """Runs what is planned and writes each start and each end to the record."""

    def __init__(self, runner: Runner, writer: RecordWriter, observed: Evidence) -> None:
        self._runner, self._writer, self._observed = runner, writer, observed
        # Files that the last rerun read and that are not what the observed run had read.
        self.contaminated: list[str] = []

    def run(self, plan: Plan, horizon: Horizon) -> Evidence | None:
        """One rerun; None where it left no evidence.

        Raises:
            RerunInterruptedError: The user stopped it; its end is recorded.
            WeaklinkError: It could not be started, or its folder could not be laid.
        """
        started = {"role": plan.role, "intervention": plan.intervention, "parameters": plan.parameters}
        self._writer.append("rerun.started", RerunStarted.model_validate({**started, "horizon": horizon}))
        record = self._runner.rerun(plan.role, self._observed, horizon, plan.intervention, plan.parameters, plan.means)
        self._writer.append("rerun.finished", finished(plan.role, record))
        self.contaminated = record.changed_inputs
        if record.result.interrupted:
            raise RerunInterruptedError(plan.role)
        return record.evidence


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
