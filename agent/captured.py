"""The step that turned non-finite: keeping it in the incident, and taking it again from there."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from weaklink.agent.close_up import SECONDS, nonfinite_from
from weaklink.agent.progress import Progress
from weaklink.agent.record.incident import Incident
from weaklink.agent.runner import Runner
from weaklink.collector.capture import Manifest, Outcomes, read_manifest
from weaklink.collector.declared import Intent
from weaklink.collector.errors import StorageError, UsageError, WeaklinkError
from weaklink.collector.evidence import Evidence

FOLDER = "captured"


def keep_step(runner: Runner, observed: Evidence, incident: Path, limit: int, progress: Progress) -> None:
    """Rerun up to where the observed run turned non-finite, and keep that step in the incident's folder.

    Nothing is kept where everything stayed finite, with a limit of 0, or where the rerun would take longer than a
    close-up may. A rerun that fails keeps nothing either: the diagnosis stands without it.

    Args:
        runner: Runs the subject again.
        observed: The evidence of the observed run.
        incident: Folder of the incident.
        limit: Bytes that the step may take.
        progress: Where to report.
    """
    onset = nonfinite_from(observed) if observed.subject.kind != "process" else None
    if not limit or onset is None or not _is_nonfinite(observed):
        return
    if (onset + 1) * observed.outcome.seconds / max(observed.outcome.steps, 1) > SECONDS:
        return
    try:
        found = runner.capture(observed, onset, limit)
        if found is None:
            return
        shutil.move(found, incident / FOLDER)
        manifest = Manifest.model_validate_json((incident / FOLDER / "manifest.json").read_text(encoding="utf-8"))
    except (WeaklinkError, OSError) as error:
        progress.say(f"captured nothing: {error}")
        return
    if manifest.complete:
        progress.say(f"captured step {manifest.step}: take it again with weaklink diagnose {incident} --captured")
    else:
        progress.say(f"step {manifest.step} was not captured: {manifest.outcomes.problem}")


def _is_nonfinite(observed: Evidence) -> bool:
    if any(not math.isfinite(loss) for loss in observed.losses.value):
        return True
    return any(parameter.gradient == "nonfinite" for parameter in observed.parameters) or any(
        isinstance(row.values.get("nonfinite"), int) and row.values["nonfinite"] for row in observed.rows
    )


@dataclass
class TakenAgain:
    """A captured step and what came of it now."""

    manifest: Manifest
    now: Outcomes
    evidence: Evidence

    @property
    def reproduced(self) -> bool:
        """Whether the same losses and the same broken gradients showed."""
        return self.now.problem is None and self.manifest.outcomes.agrees(self.now)


def take_again(incident: Incident, folder: Path, python: str, deadline: float, progress: Progress) -> TakenAgain:
    """Take an incident's captured step again, in place of the script's first one.

    Raises:
        EvidenceError: Nothing whole was captured, or it was changed since.
        UsageError: The script is not here, or its structure does not allow it; says what stands in the way.
        StorageError: There is no room for a scratch copy.
    """
    captured = incident.folder / FOLDER
    manifest = read_manifest(captured)
    observed = incident.evidence
    if observed is None or not folder.is_dir():
        raise UsageError("There is no such folder.", about=str(folder), hint="run it where the script is.")
    options = incident.opened.options
    code, rule = options.get("user_code"), options.get("rule")
    try:
        logs = tempfile.TemporaryDirectory(prefix="weaklink-")
    except OSError as error:
        raise StorageError("No scratch folder can be made.", about=tempfile.gettempdir()) from error
    with (
        logs as place,
        Runner(
            incident.opened.subject,
            folder,
            python,
            Path(place),
            deadline,
            progress,
            observed.task,
            tuple(map(str, code)) if isinstance(code, list) else (),
            incident.folder.parent,
            rule if isinstance(rule, str) else None,
            intent=Intent.model_validate(incident.opened.declared),
        ) as runner,
    ):
        record, now = runner.recreate(observed, captured)
    if record.evidence is None or now is None:
        raise UsageError(
            f"The script ended before the captured step: {record.problem or 'it left no outcome'}.",
            about=str(captured),
            hint="run the script with `python` first.",
        )
    if now.problem is not None:
        raise UsageError(
            f"The captured step cannot be taken again here: {now.problem}.",
            about=str(captured),
            hint="it takes the place of the script's first step, which must call the same models in the same order.",
        )
    return TakenAgain(manifest, now, record.evidence)
