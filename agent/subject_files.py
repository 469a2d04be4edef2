"""The file behind a subject or a rule. `train.py:build` is a function in a file, `package.module:build` in a module."""

from __future__ import annotations

import ast
import os
import posixpath
from pathlib import Path

from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Evidence, Subject


def split_function(word: str) -> tuple[str, str]:
    """Place and function of `PLACE:FUNCTION`. Only the last colon parts them: `C:\\runs\\train.py:build` has two."""
    place, _, function = word.rpartition(":")
    return place, function


def script_of(subject: Subject) -> str | None:
    """The Python file that is run, as typed; None for what is named by its module."""
    if subject.kind == "script":
        return subject.name
    if subject.kind == "factory" and is_file_name(split_function(subject.name)[0]):
        return split_function(subject.name)[0]
    return None


def names_function(word: str) -> bool:
    """`PLACE:FUNCTION`, the place a file or a module. `C:\\runs\\train.py` is neither: what follows is no name."""
    place, function = split_function(word)
    return function.isidentifier() and (is_file_name(place) or is_module_name(place))


def is_module_name(place: str) -> bool:
    """Whether `python -m` could take it."""
    return all(part.isidentifier() for part in place.split("."))


def named_function(word: str | None, folder: Path, about: str) -> str | None:
    """A declared function, its file by the path it has from the folder; None where none was declared.

    Raises:
        UsageError: It is no `module:function` or `file.py:function`, or there is no such file. `about` says where it
            was declared.
    """
    if word is None:
        return None
    if not names_function(word):
        raise UsageError(
            f"{word!r} names no function.", about=about, hint="give it as module:function or file.py:function."
        )
    place, function = split_function(word)
    if not is_file_name(place):
        return word
    if not (folder / place).is_file():
        raise UsageError("There is no such file.", about=f"{about} {word}", hint=nearby(folder / place))
    names = bound_names(folder / place)
    if names is not None and function not in names:
        shown = ", ".join(sorted(name for name in names if not name.startswith("_"))[:8])
        raise UsageError(
            f"{place} has no {function!r}.", about=f"{about} {word}", hint=f"it has: {shown or 'nothing'}."
        )
    # As seen from the folder, so that a claim that holds it is the same on every machine.
    return f"{Path(os.path.relpath(folder / place, folder)).as_posix()}:{function}"


def nearby(script: Path) -> str:
    """A hint for a path that leads nowhere: the scripts that are there."""
    folder = script.parent
    scripts = sorted(path.name for path in folder.glob("*.py"))[:5] if folder.is_dir() else []
    return f"scripts there: {', '.join(scripts)}." if scripts else "check the path and the folder you are in."


def with_script(subject: Subject, path: str) -> Subject:
    """The same subject with its file at another path."""
    name = f"{path}:{split_function(subject.name)[1]}" if subject.kind == "factory" else path
    return subject.model_copy(update={"name": name})


def is_file_name(place: str) -> bool:
    """Whether this names a file rather than a module."""
    return place.endswith(".py")


def located(path: str, folder: Path) -> str:
    """The path as a run in a copy of `folder` needs it: relative inside, absolute where it lies elsewhere."""
    found = (folder / path).resolve()
    inside = folder.resolve()
    return str(found.relative_to(inside)) if found.is_relative_to(inside) else str(found)


def located_rule(rule: str | None, folder: Path) -> str | None:
    """The rule, `module:function` or `file.py:function`, with its file as `located` has it."""
    if rule is None:
        return None
    place, function = split_function(rule)
    return f"{located(place, folder)}:{function}" if is_file_name(place) else rule


def claimed_name(evidence: Evidence) -> str:
    """The script by the path its source has in the run's folder, however it was typed."""
    script = script_of(evidence.subject)
    if script is None:
        return evidence.subject.name
    typed = posixpath.normpath(script.replace("\\", "/"))
    inside = [source.path for source in evidence.sources if not is_absolute(source.path)]
    matching = [path for path in inside if typed == path or typed.endswith("/" + path)]
    return with_script(evidence.subject, max(matching, key=len, default=typed)).name


def is_absolute(path: str) -> bool:
    """Whether a recorded path belongs to one machine, by the rules of any of them."""
    return path.startswith("/") or path[1:3] in (":\\", ":/")


def bound_names(path: Path) -> set[str] | None:
    """Names that the file's top level binds, read from its source; None where only running it could tell."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    names: set[str] = set()
    for node in tree.body:
        names |= _bound_by(node)
    return None if "*" in names or "__getattr__" in names else names


def _bound_by(node: ast.stmt) -> set[str]:
    """Names that a statement may bind; of a condition, a loop or a try, in any of its branches."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    inner = [_bound_by(child) for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored.union(*inner)
