"""Reading what a command line names: a script with its arguments, a module, a factory, an evidence file, a rule."""

from __future__ import annotations

import os
from pathlib import Path

from weaklink.agent.subject_files import bound_names, is_file_name, split_function
from weaklink.collector.errors import SubjectError, UsageError
from weaklink.collector.evidence import EVIDENCE_SCHEMA, Subject


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
        if not _is_module_name(module):
            hint = "give it as in `python -m NAME`; a factory, package.module:build, is named without -m."
            raise UsageError(f"{module!r} is no module name.", about="-m", hint=hint)
        return Subject(kind="module", name=module, argv=words)
    if not words:
        raise UsageError(
            "No script was named.", hint="name one, as in `weaklink ledger train.py -- ARGS`, or -m MODULE."
        )
    folder = Path.cwd() if folder is None else folder
    if not (folder / words[0]).exists() and _names_function(words[0]):
        return _factory(words, folder)
    _check_script(folder, words[0])
    return Subject(kind="script", name=words[0], argv=words[1:])


def read_rule(word: str | None, folder: Path | None = None) -> str | None:
    """The rule given with `--rule`, its file by the path it has from the folder; None where none was given.

    Raises:
        UsageError: It is no `module:function` or `file.py:function`, or there is no such file.
    """
    if word is None:
        return None
    if not _names_function(word):
        raise UsageError(
            f"{word!r} names no function.", about="--rule", hint="give it as module:function or file.py:function."
        )
    place, function = split_function(word)
    if not is_file_name(place):
        return word
    folder = Path.cwd() if folder is None else folder
    if not (folder / place).is_file():
        raise UsageError("There is no such file.", about=f"--rule {word}", hint=_nearby(folder / place))
    names = bound_names(folder / place)
    if names is not None and function not in names:
        shown = ", ".join(sorted(name for name in names if not name.startswith("_"))[:8])
        raise UsageError(f"{place} has no {function!r}.", about=f"--rule {word}", hint=f"it has: {shown or 'nothing'}.")
    # As seen from the folder, so that a claim that holds it is the same on every machine.
    return f"{Path(os.path.relpath(folder / place, folder)).as_posix()}:{function}"


def evidence_file(words: list[str]) -> Path | None:
    """The evidence file if the subject is one: a JSON file; whether it is a good one is told when it is read.

    Raises:
        UsageError: It was given arguments.
    """
    if not words or not words[0].endswith(".json"):
        return None
    if len(words) > 1:
        raise UsageError(
            "An evidence file takes no arguments.", about=words[0], hint=f"it must be of schema {EVIDENCE_SCHEMA}."
        )
    return Path(words[0])


def _names_function(word: str) -> bool:
    """`PLACE:FUNCTION`, the place a file or a module. `C:\\runs\\train.py` is neither: what follows is no name."""
    place, function = split_function(word)
    return function.isidentifier() and (is_file_name(place) or _is_module_name(place))


def _is_module_name(place: str) -> bool:
    return all(part.isidentifier() for part in place.split("."))


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
        raise SubjectError("There is no such script.", about=name, hint=_nearby(script))
    if script.is_dir():
        raise SubjectError("This is a folder, not a script.", about=name, hint="name the script that trains in it.")
    if script.suffix == ".ipynb":
        raise SubjectError(
            "This is a notebook, not a script.", about=name, hint="export it first: `jupyter nbconvert --to script`."
        )


def _nearby(script: Path) -> str:
    folder = script.parent
    scripts = sorted(path.name for path in folder.glob("*.py"))[:5] if folder.is_dir() else []
    return f"scripts there: {', '.join(scripts)}." if scripts else "check the path and the folder you are in."
