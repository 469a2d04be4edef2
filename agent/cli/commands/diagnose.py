"""`weaklink diagnose`: a script, a module, a factory, or an evidence file."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.commands.subjects import evidence_file, read_subject, without_declarations
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.cli.said import Said
from weaklink.agent.progress import Progress
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Finished, Options, Session
from weaklink.agent.settings import read_settings
from weaklink.collector.errors import UsageError
from weaklink.collector.replicas import read_stored
from weaklink.collector.workers import this_python


def run(
    words: list[str],
    module: str | None,
    python: str | None,
    advisor: str,
    deadline: float,
    horizon: int | None,
    rerun: bool,
    capture_limit: int,
    incidents: str,
    said: Said,
    json: bool,
) -> None:
    """Diagnose and report; leaves with the diagnosis's exit code.

    Raises:
        WeaklinkError: The command cannot be carried out.
    """
    if advisor != Playbook.name:
        raise UsageError(f"There is no advisor {advisor!r}.", about="--advisor", hint="the built-in one is `playbook`.")
    source = None if module else evidence_file(words)
    if source is not None:
        evidence = read_stored(source)
        subject, settings = evidence.subject, without_declarations(said, evidence)
    else:
        subject, settings = read_subject(words, module), read_settings(said)
    options = Options(
        subject=subject,
        folder=Path.cwd(),
        python=python or this_python(),
        incidents=Path(incidents),
        deadline=deadline,
        horizon=horizon,
        rerun=rerun,
        task=settings.task,
        user_code=settings.user_code,
        rule=settings.rule,
        intent=settings.intent,
        capture_limit=capture_limit,
    )
    session = Session(options, Playbook(), Progress())
    report(session.diagnose_script() if source is None else session.diagnose_evidence(evidence, source), json)


def report(finished: Finished, json: bool) -> None:
    """Print the incident and leave with its exit code."""
    if json:
        print_json(diagnosis_json(finished.incident))
    else:
        write(render_incident(finished.incident, width(), color()))
    raise SystemExit(finished.exit_code)
