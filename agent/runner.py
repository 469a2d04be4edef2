"""Running a subject for a diagnosis: scratch folder, workers, and where each run's output goes."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from weaklink.agent.horizons import Horizon, Means
from weaklink.agent.inputs import Inputs
from weaklink.agent.progress import Progress
from weaklink.agent.subject_files import is_absolute, located, located_rule, script_of, with_script
from weaklink.collector.asked import RESULT, InstrumentResult
from weaklink.collector.capture import MANIFEST, RECREATED, Outcomes
from weaklink.collector.declared import Intent
from weaklink.collector.errors import SubjectError
from weaklink.collector.evidence import Evidence, Subject, Value, read_evidence
from weaklink.collector.job import CLOSE_UP_STEPS, CaptureSettings, Job, JobResult, LookMode, Pins, Role
from weaklink.collector.merging import merged, needs_looks_in_place
from weaklink.collector.scratch import Scratch
from weaklink.collector.workers import Workers, base_environment, needs_fresh_interpreter

# Experiment trackers write to their services by default; no run of ours may.
OFFLINE_TRACKERS = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "MLFLOW_TRACKING_URI": "",
}
# A rerun finds in the cache whatever the observed run fetched.
OFFLINE_HUBS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
HASH_SEED = "0"
# Steps before the one at which the observed run shows a non-finite loss: its gradient may have broken before.
CAPTURE_BEFORE = 2


@dataclass
class RunRecord:
    """One run of the subject: its evidence (None where it left none) and how its process ended.

    `changed_inputs` are files it read that differ from what the first run of all found there.
    """

    evidence: Evidence | None
    result: JobResult
    files_written: list[str] = field(default_factory=list)
    changed_inputs: list[str] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """Why there is no evidence, or why it is cut short; None for a run that ended by itself."""
        if self.evidence is not None and self.evidence.outcome.ended != "killed":
            return None
        ended = f"killed by signal {self.result.signal}" if self.result.signal else f"exit code {self.result.exit_code}"
        if self.result.deadline_hit:
            ended += " after its deadline"
        elif self.result.signal == 9:
            ended += " (out of memory?)"
        return f"the run's process ended with {ended}"


class Runner:
    """Runs one subject again and again from the same state. Use as a context manager.

    Args:
        subject: The script, module or factory.
        folder: The user's working folder.
        python: Interpreter to run it in.
        logs: Folder for what the runs print.
        deadline: Seconds for each run.
        progress: Where to report.
        task: The user's sentence on input and target.
        user_code: Patterns of library files that count as the user's.
        incidents: Folder of all incidents, which is no part of the working folder.
        rule: Function that gives the targets belonging to a batch of inputs: `module:function`, `file.py:function`.
        offline: Whether the observed run too may fetch nothing from a model hub; a rerun never may.
        intent: What else the user declared.
    """

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        python: str,
        logs: Path,
        deadline: float,
        progress: Progress,
        task: str | None = None,
        user_code: tuple[str, ...] = (),
        incidents: Path | None = None,
        rule: str | None = None,
        offline: bool = False,
        intent: Intent | None = None,
    ) -> None:
        self.subject, self.folder = subject, folder.resolve()
        environment = base_environment(HASH_SEED)
        self.pins = Pins(hash=environment["PYTHONHASHSEED"])
        self._logs, self._deadline, self._progress = logs, deadline, progress
        self._task, self._user_code = task, user_code
        self._rule, self._offline = located_rule(rule, self.folder), offline
        self._intent = intent or Intent()
        self._workers = Workers(python, environment)
        script = script_of(subject)
        self._fresh = script is not None and needs_fresh_interpreter(self.folder / script)
        if not self._fresh:
            self._workers.start()  # imports torch while the folder is copied
        try:
            self._scratch = Scratch(self.folder, leave_out=incidents)
        except BaseException:
            self._workers.close()
            raise
        self._incidents = incidents
        self._beside: Scratch | None = None
        self._inputs = Inputs(self.folder)
        self._measured: dict[tuple[str, int], InstrumentResult] = {}

    def observe(self) -> RunRecord:
        """The observed run, to its end or its deadline."""
        return self._run("observe", None, None, {}, None)

    def rerun(
        self,
        role: Role,
        observed: Evidence,
        horizon: Horizon,
        intervention: str | None,
        parameters: dict[str, Value],
        means: Means | None = None,
        beside: threading.Event | None = None,
    ) -> RunRecord:
        """One rerun of `horizon` optimizer steps, under one intervention or none.

        Args:
            role: Which of an experiment's reruns it is.
            observed: The evidence of the observed run.
            horizon: Optimizer steps; None is the whole run.
            intervention: Entry of the catalogue, or the placebo.
            parameters: Those of the intervention.
            means: What is to be measured besides watching, so that rows which took it are measured again. A close-up,
                and looks that the process cannot be copied for, take short reruns of their own, under the same
                intervention; their rows are merged as the observed run's were.
            beside: Given where this one runs beside another: in a scratch folder of its own, silently, and interrupted
                once the event is set.
        """
        means = means or Means()
        looks: LookMode = "fork" if means.look else "off"
        run = functools.partial(self._run, observed=observed, parameters=parameters, intervention=intervention)
        record = run(role, horizon=horizon, looks=looks, beside=beside)
        if record.evidence is None or record.result.interrupted:
            return record
        close: RunRecord | None = None
        looked: RunRecord | None = None
        if means.starts:
            last, name = means.starts[-1] + CLOSE_UP_STEPS - 1, f"{role}.close_up"
            close = run("close_up", horizon=last, starts=means.starts, name=name, beside=beside)
        if means.look and needs_looks_in_place(record.evidence):
            looked = run("close_up", horizon=horizon, looks="in_place", name=f"{role}.looks", beside=beside)
        others = [other for other in (close, looked) if other is not None]
        record.evidence = merged(record.evidence, *(other.evidence if other else None for other in (close, looked)))
        record.result.interrupted = any(other.result.interrupted for other in others)
        return record

    def close_up(self, observed: Evidence, starts: list[int]) -> RunRecord:
        """A rerun in which every operation of a few steps is seen, from each of `starts` (ascending) on."""
        horizon = starts[-1] + CLOSE_UP_STEPS - 1
        return self._run("close_up", observed, horizon, {}, None, starts=starts)

    def has_room_beside(self, observed: Evidence) -> bool:
        """Whether two runs may go side by side: enough processors, no device to share, nothing written elsewhere.

        The number of threads stays what the observed run had: a sum over other shares has other last digits.
        """
        enough = processors() >= 2 * max(1, observed.environment.threads)
        return enough and not observed.environment.devices and not any(map(is_absolute, observed.files_written))

    def look(self, observed: Evidence) -> RunRecord:
        """A rerun to the end whose looks are taken in its own process, which is thrown away."""
        return self._run("close_up", observed, None, {}, None, looks="in_place")

    def capture(self, observed: Evidence, onset: int, limit: int) -> Path | None:
        """The folder of a captured step around `onset` that turned non-finite, until the next run; None without one."""
        folder = self._scratch.base / "captured"
        settings = CaptureSettings(folder=folder, first=max(1, onset - CAPTURE_BEFORE), last=onset + 1, limit=limit)
        self._run("capture", observed, settings.last, {}, None, capture=settings)
        return folder if (folder / MANIFEST).exists() else None

    def recreate(self, observed: Evidence, folder: Path) -> tuple[RunRecord, Outcomes | None]:
        """A captured step taken again in place of the script's first one; None where the script ended before it."""
        result = self._scratch.base / RECREATED
        record = self._run("recreate", observed, 1, {}, None, captured=folder.resolve())
        return record, Outcomes.model_validate_json(result.read_text("utf-8")) if result.exists() else None

    def instrument(self, observed: Evidence, name: str, step: int) -> tuple[InstrumentResult | None, str]:
        """An instrument on a rerun that ends at its step; without a result, why there is none.

        The same name and step are run once: the subject is deterministic, or its answer would be another by chance.

        Args:
            observed: The evidence of the observed run.
            name: Key of `INSTRUMENTS`.
            step: Optimizer step, from 1.
        """
        if (name, step) not in self._measured:
            path = self._scratch.base / RESULT
            path.unlink(missing_ok=True)
            starts = [step] if name == "nonfinite_trace" else []
            record = self._run("instrument", observed, None, {}, None, starts=starts, instrument=(name, step))
            if record.result.interrupted:
                raise KeyboardInterrupt
            if not path.exists():
                return None, f"the rerun ended before it could measure: {record.problem or 'the script left by itself'}"
            result = InstrumentResult.model_validate_json(path.read_text("utf-8"))
            out_of_time = record.evidence is not None and record.evidence.outcome.ended == "deadline"
            if result.reason is not None and out_of_time:
                result.reason += "; its deadline had passed"
            self._measured[name, step] = result
        return self._measured[name, step], ""

    def _run(
        self,
        role: Role,
        observed: Evidence | None,
        horizon: int | None,
        parameters: dict[str, Value],
        intervention: str | None,
        looks: LookMode = "off",
        starts: Sequence[int] = (),
        capture: CaptureSettings | None = None,
        captured: Path | None = None,
        name: str | None = None,
        beside: threading.Event | None = None,
        instrument: tuple[str, int] | None = None,
    ) -> RunRecord:
        """One run. `name` is what its log is called, by default its role."""
        scratch = self._scratch if beside is None else self._second_scratch()
        scratch.lay()
        evidence = scratch.base / f"{name or role}.evidence.json"
        evidence.unlink(missing_ok=True)
        rerun = observed is not None
        job = Job(
            role=role,
            subject=self._located(),
            folder=scratch.folder,
            evidence=evidence,
            horizon=horizon,
            horizon_backwards=horizon if starts else _in_backwards(horizon, observed),
            deadline=self._deadline,
            intervention=intervention,
            intervention_parameters=parameters,
            keep_initial=rerun and role not in ("close_up", "instrument"),
            looks=looks if rerun else "fork",
            close_up_at=list(starts),
            capture=capture,
            captured=captured,
            instrument=instrument[0] if instrument else None,
            instrument_step=instrument[1] if instrument else None,
            pins=self.pins,
            guard=scratch.guard,
            environment=self._environment(rerun or self._offline, scratch),
            user_code=list(self._user_code),
            task=self._task,
            rule=self._rule,
            intent=self._intent,
        )
        progress = self._progress if beside is None else None
        if progress is not None:
            progress.begin(f"{role.replace('_', ' ')} run of {self.subject.name}")
        log = self._logs / f"{name or role}.log"
        try:
            result = self._workers.run(job, log, self._fresh, progress.running if progress else None, beside)
        finally:
            if progress is not None:
                progress.done()
            with without_interruption():
                written = scratch.settle()
        record = RunRecord(None, result, written)
        if evidence.exists():
            record.evidence = read_evidence(evidence)
            record.evidence.subject = self.subject
            record.evidence.files_written = written
            record.changed_inputs = self._inputs.changed(record.evidence)
        elif not rerun and not result.interrupted:
            raise self._nothing_measured(record)
        return record

    def _located(self) -> Subject:
        """The subject as the run's folder sees it: a script beside the folder keeps its own place."""
        script = script_of(self.subject)
        return self.subject if script is None else with_script(self.subject, located(script, self.folder))

    def _second_scratch(self) -> Scratch:
        """The folder of what runs beside another run."""
        if self._beside is None:
            self._beside = Scratch(self.folder, self._incidents)
        return self._beside

    def _environment(self, offline: bool, scratch: Scratch) -> dict[str, str]:
        local = {
            **OFFLINE_TRACKERS,
            "MLFLOW_TRACKING_URI": (scratch.temporary / "mlruns").as_uri(),
            "TMPDIR": str(scratch.temporary),
            "MPLBACKEND": "Agg",  # a window would wait for somebody to close it
        }
        return {**local, **OFFLINE_HUBS} if offline else local

    def _nothing_measured(self, record: RunRecord) -> SubjectError:
        last = record.result.output_tail.strip().splitlines()
        printed = f" Last line printed: {last[-1][:200]}" if last else ""
        return SubjectError(
            f"Nothing was measured: {record.problem}.{printed}",
            about=self.subject.name,
            hint="run it with `python` first, or give it more time with --deadline.",
        )

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not leave the scratch copy, or a file that a run wrote elsewhere, as it is.
        with without_interruption():
            self._workers.close()
            for scratch in (self._scratch, self._beside):
                if scratch is not None:
                    scratch.close()


@contextlib.contextmanager
def without_interruption() -> Iterator[None]:
    """Hold Ctrl-C and its like off for as long as cleaning up takes."""
    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and threading.current_thread() is threading.main_thread():
            number = getattr(signal, name)
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def processors() -> int:
    """How many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _in_backwards(horizon: int | None, observed: Evidence | None) -> int | None:
    """The horizon of a run that never steps, in backward calls: as many a step as the observed run made."""
    if horizon is None or observed is None:
        return None
    outcome = observed.outcome
    return horizon * max(1, -(-outcome.backwards // max(1, outcome.steps)))
