"""`weaklink diagnose`: a script, a module, or an evidence file."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.commands.subjects import read_subject
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.progress import Progress
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Finished, Options, Session
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import EVIDENCE_SCHEMA, read_evidence
from weaklink.collector.workers import this_python


def run(
    words: list[str],
    module: str | None,
    python: str | None,
    advisor: str,
    deadline: float,
    horizon: int | None,
    rerun: bool,
    incidents: str,
    task: str | None,
    user_code: list[str],
    json: bool,
) -> None:
    """Diagnose and report; leaves with the diagnosis's exit code.

    Raises:
        WeaklinkError: The command cannot be carried out.
    """
    if advisor != Playbook.name:
        raise UsageError(f"There is no advisor {advisor!r}.", about="--advisor", hint="the built-in one is `playbook`.")
    evidence_file = None if module else _evidence_file(words)
    if evidence_file is not None:
        evidence = read_evidence(evidence_file)
        subject = evidence.subject
    else:
        subject = read_subject(words, module)
    options = Options(
        subject=subject,
        folder=Path.cwd(),
        python=python or this_python(),
        incidents=Path(incidents),
        deadline=deadline,
        horizon=horizon,
        rerun=rerun,
        task=task,
        user_code=tuple(user_code),
    )
    session = Session(options, Playbook(), Progress())
    if evidence_file is not None:
        finished = session.diagnose_evidence(evidence, evidence_file)
    else:
        finished = session.diagnose_script()
    report(finished, json)


def report(finished: Finished, json: bool) -> None:
    """Print the incident and leave with its exit code."""
    if json:
        print_json(diagnosis_json(finished.incident))
    else:
        write(render_incident(finished.incident, width(), color()))
    raise SystemExit(finished.exit_code)


def _evidence_file(words: list[str]) -> Path | None:
    """The evidence file if the subject is one: a JSON file; whether it is a good one is told when it is read."""
    if not words or not words[0].endswith(".json"):
        return None
    path = Path(words[0])
    if len(words) > 1:
        raise UsageError(
            "An evidence file takes no arguments.", about=words[0], hint=f"it must be of schema {EVIDENCE_SCHEMA}."
        )
    return path
