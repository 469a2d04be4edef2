"""The watcher of one run, its intervention, and the evidence they yield. Imported once torch is there, never before."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from weaklink.collector.branch import name_branch
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    Outcome,
    ParameterRecord,
    SourceFile,
    StepRecord,
)
from weaklink.collector.interventions import build
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.job import Job
from weaklink.collector.rows import build_rows
from weaklink.collector.rows.observation import Observation, joint
from weaklink.collector.watch.parameters import ParameterEntry
from weaklink.collector.watch.sites import UserCode
from weaklink.collector.watch.watcher import Watcher, WatchSettings

SOURCE_FILES = 2000


class Instruments:
    """Everything of ours that hangs on torch in this process.

    Args:
        job: What to measure, and under which intervention.
        code: The user's files.
    """

    def __init__(self, job: Job, code: UserCode) -> None:
        self._job, self._code = job, code
        self.watcher = Watcher(code, WatchSettings(job.every_step_until, job.keep_initial))
        self.intervention: Intervention | None = None
        if job.intervention is not None:
            self.intervention = build(job.intervention, job.intervention_parameters)
            self.intervention.attach(self.watcher)

    def install(self, after_step: Callable[[], None], before_backward: Callable[[], None]) -> None:
        """Put the hooks in place; the two callbacks may raise to stop the run."""
        self.watcher.after_step.append(lambda optimizer: after_step())
        self.watcher.before_backward.append(before_backward)
        self.watcher.install()

    def finish(self) -> None:
        """The script is over: bring everything to the host, and take the hooks away."""
        self.watcher.flush_losses()
        # Models of a function are gone now, those of the module are not: what they were last stands.
        if len(self.watcher.roots.alive()) == len(self.watcher.roots.entries):
            self.watcher.name_everything()
        self.watcher.remove()

    def evidence(self, outcome: Outcome) -> Evidence:
        """Everything measured so far, with this outcome."""
        watcher, tape = self.watcher, self.watcher.tape
        raised = outcome.raised
        observation = Observation(
            tape,
            watcher.parameters.entries,
            watcher.optimizers.entries,
            task=self._job.task,
            whole=outcome.ended in ("completed", "exited"),
            raised=raised.where if raised else None,
            raised_text=f"{raised.type}: {raised.message[:200]}" if raised else None,
            net=watcher.movement.net(),
            loose_moved=watcher.movement.loose_moved(),
            moved_by_hand=watcher.movement.moved_without_step() if not tape.steps else None,
        )
        problems = list(tape.problems)
        rows = build_rows(observation, problems)
        return Evidence(
            subject=self._job.subject,
            task=self._job.task,
            outcome=outcome.model_copy(
                update={
                    "backwards": tape.backwards,
                    "steps_asked": max(tape.steps_asked, tape.scaler_asked),
                    "steps": tape.steps,
                    "forwards": tape.forwards,
                }
            ),
            environment=environment(self._job),
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
            sources=sources(self._code),
            intervention=self.intervention.report if self.intervention else None,
            problems=problems,
        )


def environment(job: Job) -> Environment:
    """Versions, devices, threads and pins of this process."""
    pins = job.pins
    devices = ["cpu"]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
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
        name=entry.name or _last_path(entry),
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


def _last_path(entry: ParameterEntry) -> str:
    paths = sorted(path for path, _ in entry.places_at_optimizer)
    return paths[0] if paths else f"unnamed #{entry.serial}"


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


def sources(code: UserCode) -> list[SourceFile]:
    """Hashes of the user's own files that this process has executed."""
    for module in list(sys.modules.values()):
        # Not getattr: a lazy module would load itself, or raise.
        names = object.__getattribute__(module, "__dict__") if isinstance(module, ModuleType) else {}
        filename = names.get("__file__")
        if isinstance(filename, str):
            code.relative(filename)
    found: list[SourceFile] = []
    for name, filename in sorted(code.files.items())[:SOURCE_FILES]:
        try:
            found.append(SourceFile(path=name, sha256=hashlib.sha256(Path(filename).read_bytes()).hexdigest()))
        except OSError:
            continue
    return found
