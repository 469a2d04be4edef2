"""`weaklink answer`: what was said in a chat window, or written by a coding agent, becomes a round of its incident."""

from __future__ import annotations

import sys
from pathlib import Path

from weaklink.agent.advisors.choosing import telling
from weaklink.agent.advisors.given import LARGEST_ANSWER, Given
from weaklink.agent.answering import answer_incident, check_given, recorded_options
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.cli.said import Said, SaidAdvisor
from weaklink.agent.errors import ContractNotMetError
from weaklink.agent.progress import Progress
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.json_report import error_json
from weaklink.agent.reporters.rounds import continued_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.settings import ModelSettings, read_settings
from weaklink.collector.errors import UsageError
from weaklink.collector.table.text import printable

STDIN = "-"


def run(
    incident: str,
    file: str,
    inside: str | None,
    python: str | None,
    said_by: str | None,
    deadline: float,
    rerun: bool,
    json: bool,
) -> None:
    """Answer and report; leaves with the diagnosis's exit code, with 3 where the answer does not hold.

    Raises:
        WeaklinkError: There is no such answer, or nothing to answer here.
    """
    given = Given("paste", read_given(file), said_by)
    check_given(given)
    read = Incident.read(Path(incident))
    folder = Path(inside or read.opened.folder)
    # As in a further round of any other kind: what was measured elsewhere is rerun only where somebody says so.
    here = read.opened.source == "script" or inside is not None
    if here and rerun and not folder.is_dir():
        raise UsageError("There is no such folder.", about=str(folder), hint="name the script's folder with --in DIR.")
    options = recorded_options(read, folder, python, deadline, rerun and here)
    told = telling(SaidAdvisor(), read_settings(Said(), folder).model if folder.is_dir() else ModelSettings())
    try:
        finished = answer_incident(read, given, options, Progress(), told)
    except ContractNotMetError as error:
        _tell_refusal(error, json)
        raise SystemExit(error.exit_code) from None
    if json:
        print_json(continued_json(finished.incident))
    else:
        write(render_incident(finished.incident, width(), color()))
    raise SystemExit(finished.exit_code)


def read_given(name: str) -> str:
    """The answer's text, from a file or, for `-`, from standard input.

    Raises:
        UsageError: It is not there, too large, or no UTF-8.
    """
    about = "standard input" if name == STDIN else name
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(LARGEST_ANSWER + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(LARGEST_ANSWER + 1)
    except FileNotFoundError as error:
        raise UsageError("There is no such answer.", about=about, hint="save the reply into a file.") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"The answer cannot be read: {error}.", about=about) from error
    if len(data) > LARGEST_ANSWER:
        raise UsageError("The answer is larger than any answer.", about=about, hint="at most 1 MiB, one reply alone.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The answer is no UTF-8 text: byte {error.start}.", about=about, hint="save it as UTF-8."
        ) from error


def _tell_refusal(error: ContractNotMetError, json: bool) -> None:
    """Every broken rule on a line of its own, whole: it is meant to be handed back to whoever answered."""
    if json:
        print_json(error_json(error))
    first, *rest = error.message.split("\n")
    lines = [f"weaklink: {first}", *(f"  {printable(line, 2000)}" for line in rest)]
    lines += [f"  about: {printable(error.about, 500)}"] if error.about else []
    lines += [f"  next:  {printable(error.hint, 500)}"] if error.hint else []
    print("\n".join(lines), file=sys.stderr)
