"""`weaklink diagnose`: a script, a module, a factory, or an evidence file."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.commands.subjects import evidence_file, read_rule, read_subject
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.progress import Progress
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Finished, Options, Session
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import read_evidence
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
    rule: str | None,
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
        evidence = read_evidence(source)
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
        rule=read_rule(rule) if rule is not None or source is None else evidence.rule,
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
