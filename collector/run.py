"""One run of a user's script under the watcher: the body of every worker, and of `weaklink observe`."""

from __future__ import annotations

import hashlib
import os
import platform
import random
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

import torch
from torch.optim import Optimizer

from weaklink.collector.branch import name_branch
from weaklink.collector.errors import SubjectError, WeaklinkError
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    Outcome,
    ParameterRecord,
    RaisedException,
    SourceFile,
    StepRecord,
    write_evidence,
)
from weaklink.collector.guard import Guard
from weaklink.collector.interventions import build
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.job import Job, Pins
from weaklink.collector.launch import run_subject
from weaklink.collector.rows import build_rows
from weaklink.collector.rows.observation import Observation
from weaklink.collector.rows.update import joint
from weaklink.collector.stopping import Stopper, StopRun, leave, run_exit_handlers
from weaklink.collector.watch.parameters import ParameterEntry
from weaklink.collector.watch.sites import UserCode
from weaklink.collector.watch.watcher import Watcher, WatchSettings

FLUSH_SECONDS = 2.0
SOURCE_FILES = 2000


class ScriptRun:
    """Runs one job and keeps its evidence on disk up to date, so that a killed run leaves what it had measured."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.outcome = Outcome(ended="killed", note="the run was cut off; this is what had been measured")
        self.code = UserCode(job.folder, tuple(job.user_code))
        self.watcher = Watcher(self.code, WatchSettings(job.every_step_until, job.keep_initial))
        self.intervention: Intervention | None = None
        self.stopper = Stopper(job.horizon, job.horizon_backwards, job.deadline, self._give_up)
        self._started = time.monotonic()
        self._flushed = 0.0

    def run(self) -> int:
        """Run to the end; the evidence file is written. Returns the exit code the script would have had."""
        job = self.job
        os.chdir(job.folder)
        os.environ.update(job.environment)
        if job.pins is not None:
            _pin(job.pins)
        if job.guard is not None:
            Guard(job.guard).install()
        if job.intervention is not None:
            self.intervention = build(job.intervention, job.intervention_parameters)
            self.intervention.attach(self.watcher)
        self.watcher.after_step.append(self._after_step)
        self.watcher.before_backward.append(self._before_backward)
        self.watcher.install()
        self.stopper.listen()
        code = self._call_script()
        self.stopper.done = True
        self.watcher.flush_losses()
        self.watcher.name_everything()
        self.write()
        self.watcher.remove()
        return code

    def _call_script(self) -> int:
        try:
            run_subject(self.job.subject, self.job.folder)
        except StopRun as stop:
            self._ended_by(stop)
            return 0
        except SystemExit as stop:
            self.outcome.ended, self.outcome.note = "exited", None
            self.outcome.exit_code = _exit_code(stop)
            return self.outcome.exit_code
        except SubjectError:
            raise
        except KeyboardInterrupt:
            self.outcome.ended, self.outcome.note = "interrupted", "interrupted by the user"
            return 130
        except BaseException as error:
            self._raised(error)
            return 1
        self.outcome.ended, self.outcome.note, self.outcome.exit_code = "completed", None, 0
        return 0

    def _ended_by(self, stop: StopRun) -> None:
        self.outcome.ended, self.outcome.note = stop.reason, stop.note

    def _raised(self, error: BaseException) -> None:
        where = self.code.site_of_traceback(error.__traceback__, f"{type(error).__name__} raised")
        self.outcome.ended, self.outcome.note, self.outcome.exit_code = "raised", None, 1
        self.outcome.raised = RaisedException(type=type(error).__name__, message=str(error)[:2000], where=where)
        traceback.print_exception(type(error), error, _from_the_script_on(error.__traceback__, self.code))

    def _give_up(self, stop: StopRun) -> None:
        self._ended_by(stop)
        self.write()
        leave(0)

    def _after_step(self, optimizer: Optimizer) -> None:
        now = time.monotonic()
        first = self.watcher.tape.steps == 1
        if first or (now - self._flushed > FLUSH_SECONDS and self.watcher.sampling):
            self._flush(now)
        self.stopper.after_step(self.watcher.tape.steps)

    def _before_backward(self) -> None:
        tape = self.watcher.tape
        if tape.steps == 0 and tape.backwards in (1, 2, 10):
            self._flush(time.monotonic())
        self.stopper.before_backward(tape.steps, tape.backwards)

    def _flush(self, now: float) -> None:
        self._flushed = now
        try:
            self.write()
        except Exception as error:
            self.watcher.problem("writing evidence", error)

    def write(self) -> None:
        """Write the evidence as it stands."""
        write_evidence(self.evidence(), self.job.evidence)

    def evidence(self) -> Evidence:
        """Everything measured so far."""
        watcher, tape = self.watcher, self.watcher.tape
        outcome = self.outcome.model_copy(
            update={
                "backwards": tape.backwards,
                "steps_asked": max(tape.steps_asked, tape.scaler_asked),
                "steps": tape.steps,
                "forwards": tape.forwards,
                "seconds": round(time.monotonic() - self._started, 3),
            }
        )
        raised = self.outcome.raised
        observation = Observation(
            tape,
            watcher.parameters.entries,
            watcher.optimizers.entries,
            task=self.job.task,
            raised=raised.where if raised else None,
            raised_text=f"{raised.type}: {raised.message[:200]}" if raised else None,
            net=watcher.movement.net(),
            moved_by_hand=watcher.movement.moved_without_step() if not tape.steps else None,
        )
        problems = list(tape.problems)
        rows = build_rows(observation, problems)
        return Evidence(
            subject=self.job.subject,
            task=self.job.task,
            outcome=outcome,
            environment=_environment(self.job.pins),
            branch=name_branch(tape.losses.value, raised is not None, rows),
            rows=rows,
            parameters=[_record(observation, entry) for entry in _shown(observation)],
            steps=_step_records(observation),
            losses=tape.losses.series(),
            fingerprint=Fingerprint(
                inputs=tape.inputs_digest,
                targets=tape.targets_digest,
                outputs=tape.outputs_digest,
                loss=tape.losses.value[0] if tape.losses.value else None,
            ),
            sources=_sources(self.code, self.job.folder),
            intervention=self.intervention.report if self.intervention else None,
            problems=problems,
        )


def run_job(job: Job) -> int:
    """Run a job in this process, exit handlers included. Returns the exit code for the process."""
    run = ScriptRun(job)
    code = run.run()
    try:
        run_exit_handlers()
    except BaseException:
        traceback.print_exc()
    return code


def run_job_and_leave(job: Job, refused: Path) -> None:
    """Worker entry: never returns. A refusal of ours is written to `refused` as one line of JSON."""
    import json

    try:
        leave(run_job(job))
    except WeaklinkError as error:
        body = {"class": type(error).__name__, "message": error.message, "about": error.about, "hint": error.hint}
        refused.write_text(json.dumps(body), encoding="utf-8")
    except BaseException:
        traceback.print_exc()
    leave(70)


def _pin(pins: Pins) -> None:
    random.seed(pins.python)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(pins.numpy)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _from_the_script_on(trace: TracebackType | None, code: UserCode) -> TracebackType | None:
    """The traceback as the user knows it: from the script's own first frame."""
    start = trace
    while start is not None and code.relative(start.tb_frame.f_code.co_filename) is None:
        start = start.tb_next
    return start or trace


def _environment(pins: Pins | None) -> Environment:
    devices = ["cpu"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices += [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Environment(
        torch=str(torch.__version__),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        devices=devices,
        threads=torch.get_num_threads(),
        pins={} if pins is None else {"random": str(pins.python), "numpy": str(pins.numpy), "hash": pins.hash},
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )


def _shown(run: Observation) -> list[ParameterEntry]:
    """Parameters of a model, and whatever an optimizer holds or a loss reaches besides."""
    held = {serial for optimizer in run.optimizers for serial in optimizer.held}
    return [e for e in run.parameters if e.ever_in_model or e.serial in held or (e.is_parameter and e.reached)]


def _record(run: Observation, entry: ParameterEntry) -> ParameterRecord:
    first_delta = next((s.delta[entry.serial] for s in run.steps if entry.serial in s.delta), None)
    norm = next((s.before[entry.serial] for s in run.steps if entry.serial in s.before), None)
    first_order = min((o.order for o in run.optimizers), default=None)
    return ParameterRecord(
        name=entry.name or entry.path_at_optimizer or f"unnamed #{entry.serial}",
        shape=list(entry.shape),
        dtype=entry.dtype,
        requires_grad=entry.requires_grad,
        in_model=entry.in_model,
        owned=bool(entry.owners),
        registered=entry.ever_in_model,
        groups=entry.groups,
        created=entry.created,
        created_by=entry.created_by,
        created_after_optimizer=first_order is not None and entry.order is not None and entry.order > first_order,
        reached=entry.reached,
        gradient=entry.gradient,
        gradient_norm_first=entry.gradient_norm_first,
        gradient_digest_first=entry.gradient_digest_first,
        always_zero=all(state == "zero" for state in entry.states) if entry.states else None,
        moved=run.moved(entry),
        delta_first=first_delta,
        delta_net=run.net.get(entry.serial),
        norm=norm,
    )


def _step_records(run: Observation) -> list[StepRecord]:
    learning = [entry.serial for entry in run.learning()]
    return [
        StepRecord(
            step=sample.step,
            lr=sample.lr,
            gradient_norm=sample.gradient_norm,
            parameter_norm=joint(sample.before, learning),
            delta_norm=joint(sample.delta, learning),
        )
        for sample in run.steps
    ]


def _sources(code: UserCode, folder: Path) -> list[SourceFile]:
    """Hashes of the user's own files that this process has executed."""
    for module in list(sys.modules.values()):
        filename = getattr(module, "__file__", None)
        if isinstance(filename, str):
            code.relative(filename)
    found: list[SourceFile] = []
    for name, filename in sorted(code.files.items())[:SOURCE_FILES]:
        try:
            found.append(SourceFile(path=name, sha256=hashlib.sha256(Path(filename).read_bytes()).hexdigest()))
        except OSError:
            continue
    return found
