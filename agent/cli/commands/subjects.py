"""Reading what a command line names: a script with its arguments, or a module."""

from __future__ import annotations

from pathlib import Path

from weaklink.collector.errors import SubjectError, UsageError
from weaklink.collector.evidence import Subject


def read_subject(words: list[str], module: str | None) -> Subject:
    """The subject of a command.

    Args:
        words: What stood on the command line besides options: a script and its arguments, or a module's arguments.
        module: Name given with `-m`.

    Raises:
        UsageError: Nothing was named.
        SubjectError: The script does not exist or is a folder.
    """
    if module is not None:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"{module!r} is no module name.", about="-m", hint="give it as in `python -m NAME`.")
        return Subject(kind="module", name=module, argv=words)
    if not words:
        raise UsageError("No script was named.", hint="say `weaklink diagnose train.py -- ARGS`, or -m MODULE.")
    script = Path(words[0])
    if not script.exists():
        raise SubjectError("There is no such script.", about=words[0], hint=_nearby(script))
    if script.is_dir():
        raise SubjectError("This is a folder, not a script.", about=words[0], hint="name the script that trains in it.")
    if script.suffix == ".ipynb":
        raise SubjectError(
            "This is a notebook, not a script.",
            about=words[0],
            hint="export it first: `jupyter nbconvert --to script`.",
        )
    return Subject(kind="script", name=words[0], argv=words[1:])


def _nearby(script: Path) -> str:
    folder = script.parent
    scripts = sorted(path.name for path in folder.glob("*.py"))[:5] if folder.is_dir() else []
    return f"scripts there: {', '.join(scripts)}." if scripts else "check the path and the folder you are in."
