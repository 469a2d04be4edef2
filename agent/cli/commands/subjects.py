"""Reading what a command line names: a script with its arguments, a module, a factory, an evidence file."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.cli.said import Said
from weaklink.agent.settings import Settings
from weaklink.agent.subject_files import (
    is_file_name,
    is_module_name,
    named_function,
    names_function,
    nearby,
    split_function,
)
from weaklink.collector.declared import Intent
from weaklink.collector.errors import SubjectError, UsageError
from weaklink.collector.evidence import EVIDENCE_SCHEMA, Evidence, Subject
from weaklink.collector.replicas import is_run_folder


def read_subject(words: list[str], module: str | None, folder: Path | None = None) -> Subject:
    """The subject of a command.

    Args:
        words: What stood on the command line besides options: a script and its arguments, a factory (`train.py:build`,
            `package.module:build`), or a module's arguments.
        module: Name given with `-m`.
        folder: The folder that paths are relative to, by default the current one.

    Raises:
        UsageError: Nothing was named, or a factory was given arguments.
        SubjectError: The script does not exist or is a folder.
    """
    if module is not None:
        if not is_module_name(module):
            hint = "give it as in `python -m NAME`; a factory, package.module:build, is named without -m."
            raise UsageError(f"{module!r} is no module name.", about="-m", hint=hint)
        return Subject(kind="module", name=module, argv=words)
    if not words:
        raise UsageError(
            "No script was named.", hint="name one, as in `weaklink ledger train.py -- ARGS`, or -m MODULE."
        )
    folder = Path.cwd() if folder is None else folder
    if not (folder / words[0]).exists() and names_function(words[0]):
        return _factory(words, folder)
    _check_script(folder, words[0])
    return Subject(kind="script", name=words[0], argv=words[1:])


def evidence_file(words: list[str]) -> Path | None:
    """The evidence file if the subject is one: a JSON file, or the folder that the ranks of one run wrote.

    Whether it is a good one is told when it is read.

    Raises:
        UsageError: It was given arguments.
    """
    if not words or not (words[0].endswith(".json") or is_run_folder(Path(words[0]))):
        return None
    if len(words) > 1:
        raise UsageError(
            "An evidence file takes no arguments.", about=words[0], hint=f"it must be of schema {EVIDENCE_SCHEMA}."
        )
    return Path(words[0])


def without_declarations(said: Said, evidence: Evidence) -> Settings:
    """The declarations that an evidence file was measured with; a rule for its reruns may be named later.

    Raises:
        UsageError: More is declared now: the run is over, and what it showed was held against something else.
    """
    if said.intends:
        raise UsageError(
            "An evidence file was measured with its declarations.",
            about="--trainable, --frozen, --classes, --config",
            hint="declare them where the run is: `weaklink observe train.py --trainable ...`.",
        )
    rule = named_function(said.rule, Path.cwd(), "--rule") if said.rule is not None else evidence.rule
    return Settings(said.task, rule, said.user_code, Intent.model_validate(evidence.declared))


def _factory(words: list[str], folder: Path) -> Subject:
    name, *arguments = words
    place, _ = split_function(name)
    if is_file_name(place):
        _check_script(folder, place)
    if arguments:
        raise UsageError(
            "A factory takes no arguments: it is called without any.",
            about=name,
            hint="give the values inside the function, or name a script: `weaklink diagnose train.py -- ARGS`.",
        )
    return Subject(kind="factory", name=name)


def _check_script(folder: Path, name: str) -> None:
    script = folder / name
    if not script.exists():
        raise SubjectError("There is no such script.", about=name, hint=nearby(script))
    if script.is_dir():
        raise SubjectError("This is a folder, not a script.", about=name, hint="name the script that trains in it.")
    if script.suffix == ".ipynb":
        raise SubjectError(
            "This is a notebook, not a script.", about=name, hint="export it first: `jupyter nbconvert --to script`."
        )
