"""From what a watcher wrote down to rows and evidence: one way for scripts, factories, ledgers and watched loops."""

from __future__ import annotations

import hashlib
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch

from weaklink.collector.branch import name_branch
from weaklink.collector.declared import Declared
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    InterventionReport,
    Outcome,
    ParameterRecord,
    Row,
    SourceFile,
    StepRecord,
    Subject,
)
from weaklink.collector.job import Pins
from weaklink.collector.rows import build_rows
from weaklink.collector.rows.observation import Observation, joint
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.ranks import RanksRecord
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stages import StagesRecord
from weaklink.collector.watching.watcher import Watcher

SOURCE_FILES = 2000


@dataclass
class Reading:
    """A run as it was read at one moment. Rows are there at once; records and hashes are made when they are asked for.

    Holds plain data only, so that it may outlive the models it speaks about.
    """

    subject: Subject
    observation: Observation
    outcome: Outcome
    rows: list[Row]
    problems: list[str]
    pins: Pins | None = None
    report: InterventionReport | None = None
    code: UserCode | None = None
    steps: list[StepRecord] = field(default_factory=list)

    def evidence(self, max_parameters: int | None = None) -> Evidence:
        """Everything measured, as the file that passes to the agent; with so many parameters' records at most."""
        tape = self.observation.tape
        parameters, problems = self.parameters(), list(self.problems)
        if max_parameters is not None and len(parameters) > max_parameters:
            problems.append(f"records of {len(parameters) - max_parameters} parameters were left out")
            parameters = _most_telling(parameters, max_parameters)
        return Evidence(
            subject=self.subject,
            task=self.observation.declared.task,
            rule=self.observation.declared.rule,
            declared=self.observation.declared.intent.said,
            outcome=self.outcome,
            environment=environment(self.pins),
            branch=name_branch(tape.losses.value, self.outcome.raised is not None, self.rows),
            rows=self.rows,
            parameters=parameters,
            steps=self.steps,
            losses=tape.losses.series(),
            stages=tape.record(StagesRecord).steps,
            fingerprint=Fingerprint(
                inputs=tape.inputs_digest,
                targets=tape.targets_digest,
                outputs=tape.outputs_digest,
                loss=tape.losses.value[0] if tape.losses.value else None,
            ),
            sources=sources(self.code) if self.code else [],
            intervention=self.report,
            replica=self.observation.record(RanksRecord).replica,
            problems=problems,
        )

    def parameters(self) -> list[ParameterRecord]:
        """One record a parameter object."""
        run = self.observation
        first_order = min((optimizer.order for optimizer in run.optimizers), default=None)
        return [_record(run, entry, first_order) for entry in _shown(run)]


def read(
    watcher: Watcher,
    subject: Subject,
    outcome: Outcome,
    declared: Declared,
    pins: Pins | None = None,
    report: InterventionReport | None = None,
    net: dict[int, float] | None = None,
) -> Reading:
    """Read the watcher's tape and books as they stand.

    `net` is the movement since the first step, where the parameters have been put back since.
    """
    tape = watcher.tape
    raised = outcome.raised
    observation = Observation(
        tape,
        watcher.parameters.entries,
        watcher.optimizers.entries,
        declared=declared,
        examined=watcher.examined,
        given=watcher.given,
        rule_declared=watcher.rules.is_declared,
        rule_problem=watcher.rules.problem,
        in_process=watcher.settings.in_process,
        whole=outcome.ended in ("completed", "exited"),
        raised=raised.where if raised else None,
        raised_text=f"{raised.type}: {raised.message[:200]}" if raised else None,
        net=watcher.movement.net() if net is None else net,
        loose_moved=watcher.movement.loose_moved(),
        moved_by_hand=watcher.movement.moved_without_step() if not tape.steps else None,
    )
    problems = list(tape.problems)
    rows = build_rows(observation, problems)
    if tape.broken is not None:
        rows = [_withdrawn(row, tape.broken) for row in rows]
    counted = {
        "backwards": tape.backwards,
        "steps_asked": max(tape.steps_asked, tape.scaler_asked),
        "steps": tape.steps,
        "forwards": tape.forwards,
    }
    return Reading(
        subject,
        observation,
        outcome.model_copy(update=counted),
        rows,
        problems,
        pins=pins,
        report=report,
        code=watcher.code,
        steps=_step_records(observation),
    )


def _most_telling(records: list[ParameterRecord], limit: int) -> list[ParameterRecord]:
    """As many records, in their order: those that are not simply owned, reached and moving come first."""

    def usual(record: ParameterRecord) -> bool:
        learns = record.owned and record.in_model and record.reached and record.moved and record.gradient == "nonzero"
        return bool(learns) and not record.created_after_optimizer

    kept = sorted(range(len(records)), key=lambda index: (usual(records[index]), index))[:limit]
    return [records[index] for index in sorted(kept)]


def _withdrawn(row: Row, why: str) -> Row:
    """After a failure of our own nobody is accused: what looks missing may only not have been seen."""
    if row.status not in ("fail", "suspected") or row.label == "raised":
        return row
    return Row(id=row.id, status="not_measured", text=row.text, reason=f"a hook of weaklink's own failed: {why}")


def environment(pins: Pins | None) -> Environment:
    """Versions, devices, threads and pins of this process."""
    # The instruction set decides the last digits: two machines with one torch may differ in it.
    devices = [f"cpu {torch.backends.cpu.get_cpu_capability()}"]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices += [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Environment(
        torch=str(torch.__version__),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        devices=devices,
        threads=torch.get_num_threads(),
        pins={} if pins is None else _pinned(pins),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )


def _pinned(pins: Pins) -> dict[str, str]:
    moved = {"offset": str(pins.offset)} if pins.offset else {}
    return {"random": str(pins.python), "numpy": str(pins.numpy), "hash": pins.hash, **moved}


def _shown(run: Observation) -> list[ParameterEntry]:
    """Parameters of a model, and whatever an optimizer holds or a loss reaches besides."""
    held = {serial for optimizer in run.optimizers for serial in optimizer.held}
    return [e for e in run.parameters if e.ever_in_model or e.serial in held or (e.is_parameter and e.reached)]


def _record(run: Observation, entry: ParameterEntry, first_order: int | None) -> ParameterRecord:
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
        digest_first=entry.digest_first,
        always_zero=all(state == "zero" for state in entry.states) if entry.states else None,
        moved=run.moved(entry),
        delta_first=next((s.delta[entry.serial] for s in run.steps if entry.serial in s.delta), None),
        delta_net=run.net.get(entry.serial),
        norm=next((s.before[entry.serial] for s in run.steps if entry.serial in s.before), None),
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
        # Not getattr: a lazy module would load itself, or raise. Not isinstance: an object of a C library may say that
        # it is a module, and have no names.
        names = object.__getattribute__(module, "__dict__") if issubclass(type(module), ModuleType) else {}
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
