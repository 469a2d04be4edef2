"""`weaklink diagnose`: a script, a module, a factory, or an evidence file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from weaklink.agent.advisors.choosing import choose
from weaklink.agent.cli.commands.subjects import evidence_file, read_subject, without_declarations
from weaklink.agent.cli.operator import at_the_terminal
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.cli.said import Said, SaidAdvisor
from weaklink.agent.progress import Progress
from weaklink.agent.record.bodies import AdvisorFailed
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Finished, Options, Session, nobody
from weaklink.agent.settings import read_settings
from weaklink.collector.replicas import read_stored
from weaklink.collector.table.text import printable
from weaklink.collector.workers import this_python


def run(
    words: list[str],
    module: str | None,
    python: str | None,
    asked: SaidAdvisor,
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
    source = None if module else evidence_file(words)
    if source is not None:
        evidence = read_stored(source)
        subject, settings = evidence.subject, without_declarations(said, evidence)
    else:
        subject, settings = read_subject(words, module), read_settings(said)
    progress = Progress()
    # Before anything runs: a misspelt advisor must not cost a whole run.
    advisor = choose(asked, settings.model, os.environ, progress)
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
    session = Session(options, advisor, progress, operator=nobody if json else at_the_terminal)
    report(session.diagnose_script() if source is None else session.diagnose_evidence(evidence, source), json)


def report(finished: Finished, json: bool) -> None:
    """Print the incident and leave with its exit code."""
    if json:
        print_json(diagnosis_json(finished.incident))
    else:
        write(render_incident(finished.incident, width(), color()))
    if finished.incident.failed is not None:
        tell_failure(finished.incident.failed)
    raise SystemExit(finished.exit_code)


def tell_failure(failed: AdvisorFailed) -> None:
    """On stderr, as errors are told: the advisor that was asked gave no answer, whatever else was delivered."""
    lines = [f"weaklink: the {failed.advisor} advisor gave no answer: {printable(failed.problem, 1000)}"]
    lines += [f"  about: {printable(failed.about, 500)}"] if failed.about else []
    lines += [f"  next:  {printable(failed.hint, 500)}"] if failed.hint else []
    print("\n".join(lines), file=sys.stderr)
