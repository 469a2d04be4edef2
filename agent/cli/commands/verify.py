"""`weaklink verify`: the reruns of an incident that ended after freezing."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.cli.commands.diagnose import report
from weaklink.agent.progress import Progress
from weaklink.agent.record.incident import Incident
from weaklink.agent.session import Options, verify_incident
from weaklink.collector.declared import Intent
from weaklink.collector.errors import UsageError
from weaklink.collector.workers import this_python


def run(incident: str, inside: str | None, python: str | None, deadline: float, json: bool) -> None:
    """Verify and report; leaves with the diagnosis's exit code.

    Raises:
        WeaklinkError: There is nothing to verify, or not here.
    """
    read = Incident.read(Path(incident))
    folder = Path(inside or read.opened.folder)
    if not folder.is_dir():
        raise UsageError("There is no such folder.", about=str(folder), hint="name the script's folder with --in DIR.")
    options = Options(
        subject=read.opened.subject,
        folder=folder.resolve(),
        python=python or this_python(),
        incidents=read.folder.parent,
        deadline=deadline,
        task=read.evidence.task if read.evidence else None,
        user_code=_strings(read.options.get("user_code")),
        rule=_text(read.options.get("rule")),
        intent=Intent.model_validate(read.declared),
    )
    report(verify_incident(read, options, Progress()), json)


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
