"""`weaklink continue`: one more round in the same incident, with what the operator adds."""

from __future__ import annotations

import json as reader
import os
import sys
from pathlib import Path

from weaklink.agent.advisors.choosing import choose
from weaklink.agent.cli.commands.diagnose import tell_failure
from weaklink.agent.cli.operator import at_the_terminal
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.cli.said import Said, SaidAdvisor
from weaklink.agent.continuing import Addition, continue_incident
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import ExperimentChoice
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.rounds import continued_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.session import Options, nobody
from weaklink.agent.settings import Settings, read_settings
from weaklink.collector.catalogue import checked_parameters
from weaklink.collector.declared import Intent
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Value
from weaklink.collector.workers import this_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = "facts"  # the list in a facts file that is TOML


def run(
    incident: str,
    parameters: list[str],
    facts: list[str],
    facts_file: str | None,
    experiment: str | None,
    inside: str | None,
    python: str | None,
    asked: SaidAdvisor,
    deadline: float,
    horizon: int | None,
    rerun: bool,
    said: Said,
    json: bool,
) -> None:
    """Go on and report; leaves with the diagnosis's exit code.

    Raises:
        WeaklinkError: There is nothing to go on with, or not here.
    """
    read = Incident.read(Path(incident))
    addition = Addition((*facts, *_from_file(facts_file)), _choice(experiment, parameters))
    folder = Path(inside or read.opened.folder)
    # A diagnosed evidence file was measured elsewhere: nothing is rerun unless somebody says where the script is.
    here = read.opened.source == "script" or inside is not None
    if here and not folder.is_dir():
        raise UsageError("There is no such folder.", about=str(folder), hint="name the script's folder with --in DIR.")
    declared = read_settings(said, folder) if here else _nothing_more(said)
    options = _options(read, declared, folder.resolve(), python, deadline, horizon, rerun and here)
    progress = Progress()
    advisor = choose(asked, declared.model, os.environ, progress)
    operator = nobody if json else at_the_terminal
    finished = continue_incident(read, addition, options, advisor, progress, operator)
    if json:
        print_json(continued_json(finished.incident))
    else:
        write(render_incident(finished.incident, width(), color()))
    if finished.incident.failed is not None:
        tell_failure(finished.incident.failed)
    raise SystemExit(finished.exit_code)


def _nothing_more(said: Said) -> Settings:
    """No declarations, for a run that was measured elsewhere."""
    if said.intends or said.rule is not None:
        raise UsageError(
            "This run was measured elsewhere; only where its script is can more be held against it.",
            about="--trainable, --frozen, --classes, --rule, --config",
            hint="name the script's folder with --in DIR.",
        )
    return Settings(said.task, None, said.user_code, Intent())


def _options(
    read: Incident,
    now: Settings,
    folder: Path,
    python: str | None,
    deadline: float,
    horizon: int | None,
    rerun: bool,
) -> Options:
    """As recorded, where the command line and the folder's weaklink.toml do not say more."""
    before = Intent.model_validate(read.declared)
    intent = Intent.model_validate(before.said | now.intent.said)
    recorded_rule, code = read.options.get("rule"), read.options.get("user_code")
    rule = now.rule or (recorded_rule if isinstance(recorded_rule, str) else None)
    return Options(
        subject=read.opened.subject,
        folder=folder,
        python=python or this_python(),
        incidents=read.folder.parent,
        deadline=deadline,
        horizon=horizon,
        rerun=rerun,
        task=now.task or (read.evidence.task if read.evidence else None),
        user_code=now.user_code or (tuple(map(str, code)) if isinstance(code, list) else ()),
        rule=rule,
        intent=intent,
    )


def _choice(name: str | None, words: list[str]) -> ExperimentChoice | None:
    """The experiment of the command line, its parameters checked against the catalogue."""
    if name is None:
        if words:
            hint = "name it: --experiment NAME."
            raise UsageError("Parameters belong to an experiment.", about=" ".join(words), hint=hint)
        return None
    parameters: dict[str, Value] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            hint = f"as in `--experiment {name} factor=0.1`."
            raise UsageError("A parameter is given as key=value.", about=word, hint=hint)
        parameters[key] = _value(value)
    checked_parameters(name, parameters)
    return ExperimentChoice(name=name, parameters=parameters)


def _value(text: str) -> Value:
    """A number, true or false where it is one, else the text itself."""
    try:
        value = reader.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _from_file(name: str | None) -> list[str]:
    """One fact a line; in a file that ends in `.toml`, the list `facts`."""
    if name is None:
        return []
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The facts cannot be read: {error}.", about=f"--facts {name}") from error
    if not name.endswith(".toml"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        found = tomllib.loads(text).get(FACTS)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"This is no TOML: {error}.", about=f"--facts {name}") from error
    if not isinstance(found, list) or not all(isinstance(fact, str) for fact in found):
        raise UsageError("The file holds no list of facts.", about=name, hint='as in `facts = ["...", "..."]`.')
    return found
