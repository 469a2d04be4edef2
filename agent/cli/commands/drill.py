"""`weaklink drill`: the branch of a run, its first measurement, one control, and the first fix over several seeds."""

from __future__ import annotations

import tempfile
from pathlib import Path

from weaklink.agent.cli.commands.subjects import evidence_file, read_subject
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.cli.said import Said
from weaklink.agent.drill.session import Driller, DrillInterruptedError
from weaklink.agent.drill.shapes import Drill
from weaklink.agent.progress import Progress
from weaklink.agent.reporters.drill import drill_json, drill_sections
from weaklink.agent.reporters.terminal import render_sections
from weaklink.agent.runner import Runner
from weaklink.agent.settings import read_settings
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Subject
from weaklink.collector.workers import this_python

GOOD = ("established", "nothing to drill")


def run(
    words: list[str], module: str | None, python: str | None, seeds: int, deadline: float, said: Said, json: bool
) -> None:
    """Drill and report; leaves with 0 where a fix is established or there is nothing to drill, else with 1.

    Raises:
        WeaklinkError: The subject cannot be run, or nothing was measured.
    """
    if module is None and evidence_file(words) is not None:
        raise UsageError("A drill runs the subject again.", about=words[0], hint="name the script, where it is.")
    subject = read_subject(words, module)
    found = drill_subject(subject, Path.cwd(), python or this_python(), seeds, deadline, said, Progress())
    if json:
        print_json(drill_json(found))
    else:
        write(render_sections(drill_sections(found), width(), color()))
    raise SystemExit(0 if found.outcome in GOOD else 1)


def drill_subject(
    subject: Subject,
    folder: Path,
    python: str,
    seeds: int,
    deadline: float,
    said: Said,
    progress: Progress,
    offline: bool = False,
) -> Drill:
    """One drill in a scratch copy of the folder; nothing is recorded.

    Raises:
        WeaklinkError: The subject cannot be run, or nothing was measured.
        KeyboardInterrupt: The user stopped a run.
    """
    declared = read_settings(said, folder)
    with tempfile.TemporaryDirectory(prefix="weaklink-") as logs:
        settings = (python, Path(logs), deadline, progress, declared.task, declared.user_code)
        with Runner(subject, folder, *settings, offline=offline, rule=declared.rule, intent=declared.intent) as runner:
            try:
                return Driller(runner, seeds).drill()
            except DrillInterruptedError:
                raise KeyboardInterrupt from None
