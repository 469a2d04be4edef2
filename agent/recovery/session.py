"""One recovery from start to end: find both sides, run them, decide, record."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from weaklink.agent.baseline import lay_baseline
from weaklink.agent.progress import Progress
from weaklink.agent.record.bodies import Closed
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident
from weaklink.agent.record.recoveries import RecoveryFinished, RecoveryStarted
from weaklink.agent.recovery.decision import decide
from weaklink.agent.recovery.metric import metric_of
from weaklink.agent.recovery.runs import Place, SideRuns, Watching, compare, run_side
from weaklink.agent.reporters.reading import effective_divergence, status_of
from weaklink.agent.subject_files import located, located_rule, script_of, with_script
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.declared import Intent
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Subject

RECOVERED = "recovered (bounded)"


@dataclass(frozen=True)
class Asked:
    """What a recovery was asked for.

    Attributes:
        path: A repaired script, or a folder in which the same command runs; None is the recorded folder as it now is.
        seeds: How many random starts; 0 is the run as it is.
        metric: `NAME:max` or `NAME:min`; None leaves it to `weaklink.toml`.
        deadline: Seconds for each run.
    """

    path: Path | None
    seeds: int
    metric: str | None
    python: str
    deadline: float


def recover(incident: Incident, asked: Asked, progress: Progress) -> Incident:
    """Run baseline and repair, record both, and answer the incident as it then is.

    Raises:
        UsageError: The incident has no divergence, no baseline, or the repair is not where it was said to be.
        RecordDamagedError: The record cannot be continued.
        KeyboardInterrupt: The user stopped a run; no verdict is recorded.
    """
    row = _row_of(incident)
    original = Path(incident.opened.folder)
    repair = _repair(incident, asked.path, original)
    intent = Intent.model_validate(incident.declared)
    metric = metric_of(asked.metric, intent.metric)
    watching = Watching(
        row=row,
        seeds=list(range(asked.seeds)),
        metric=metric,
        python=asked.python,
        deadline=asked.deadline,
        logs=_logs(incident),
        incidents=incident.folder.parent,
        task=incident.evidence.task if incident.evidence else None,
        user_code=_strings(incident.options.get("user_code")),
        intent=intent,
    )
    assert incident.baseline is not None
    with tempfile.TemporaryDirectory(prefix="weaklink-base-") as base, RecordWriter.resume(incident.folder) as writer:
        # Under its own name: a script may look at the name of its folder.
        folder = Path(base).resolve() / (original.name or "root")
        changed = lay_baseline(incident.folder, incident.baseline, original, folder)
        baseline = Place("baseline", _moved(incident.opened.subject, original), folder, _rule(incident, original))
        writer.append(
            "recovery.started",
            RecoveryStarted(
                created=datetime.now().astimezone().isoformat(timespec="seconds"),
                row=row,
                subject=repair.subject,
                folder=str(repair.folder),
                seeds=watching.seeds,
                metric=metric,
                changed=changed,
            ),
        )
        before = run_side(baseline, watching, progress)
        after = run_side(repair, watching, progress)
        finished = _finished(incident, watching, repair, before, after, changed)
        writer.append("recovery.finished", finished, durable=True)
        code = 0 if finished.status.recovery == RECOVERED else 1
        writer.append("incident.closed", Closed(status=finished.status, exit_code=code), durable=True)
    return Incident.read(incident.folder)


def _finished(
    incident: Incident, watching: Watching, repair: Place, before: SideRuns, after: SideRuns, changed: list[str]
) -> RecoveryFinished:
    compare(watching.row, before.runs, after.runs)
    runs = [*before.runs, *after.runs]
    decision = decide(watching.row, runs, watching.metric, changed)
    return RecoveryFinished(
        row=watching.row,
        subject=repair.subject,
        folder=str(repair.folder),
        runs=runs,
        metric=watching.metric,
        sources=after.sources,
        reasons=decision.reasons,
        limits=decision.limits,
        status=IncidentStatus(cause=status_of(incident).cause, action="applied", recovery=decision.recovery),
    )


def _row_of(incident: Incident) -> str:
    about = str(incident.folder)
    row = effective_divergence(incident)
    if incident.opened.subject.kind == "process" or incident.opened.source == "evidence":
        raise UsageError(
            "This was measured elsewhere; there is no run here to compare a repair with.",
            about=about,
            hint="diagnose the script where it runs, and recover that incident.",
        )
    if row is None:
        raise UsageError(
            "No row of this incident diverges, so nothing can recover.",
            about=about,
            hint=f"read it with `weaklink show {about}`.",
        )
    if incident.baseline is None or incident.baseline.problem is not None:
        why = "its record is older" if incident.baseline is None else incident.baseline.problem
        raise UsageError(
            f"This incident keeps no baseline: {why}.", about=about, hint="diagnose again, before anything is mended."
        )
    return row.id


def _repair(incident: Incident, path: Path | None, original: Path) -> Place:
    """Where the repair is: a folder for the same command, or a script in place of the incident's."""
    subject, folder = incident.opened.subject, original if path is None else path
    if not folder.exists():
        raise UsageError("There is no such file or folder.", about=str(folder), hint="name the repaired one.")
    if folder.is_dir():
        return Place("repair", _moved(subject, original), folder.resolve(), _rule(incident, original))
    if script_of(subject) is None:
        raise UsageError(
            "This incident ran a module; one file cannot take its place.",
            about=str(folder),
            hint="name the folder in which the repaired module lies.",
        )
    where = original if original.is_dir() else folder.resolve().parent
    repaired = with_script(subject, located(str(folder.resolve()), where))
    return Place("repair", repaired, where.resolve(), _rule(incident, original))


def _moved(subject: Subject, original: Path) -> Subject:
    """The subject as a copy of its folder sees it: a script beside the folder keeps its own place."""
    script = script_of(subject)
    return subject if script is None else with_script(subject, located(script, original))


def _rule(incident: Incident, original: Path) -> str | None:
    rule = incident.options.get("rule")
    return located_rule(rule, original) if isinstance(rule, str) else None


def _logs(incident: Incident) -> Path:
    """A folder of its own for what the runs of this recovery print."""
    number = sum(kind == "recovery.started" for _, kind, _ in incident.events) + 1
    return incident.folder / "logs" / f"recovery{number}"


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
