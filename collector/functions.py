"""Functions that the user names on the command line: `package.module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weaklink.collector.errors import SubjectError
from weaklink.collector.launch import compile_script


def load_function(name: str, folder: Path, option: str | None = None) -> Callable[..., Any]:
    """Import the function of that name. The user's own exceptions at import pass through.

    Args:
        name: `module:function` or `file.py:function`, the file relative to `folder`.
        folder: The working folder; modules are looked up there first.
        option: What the name was given as, for the error; the subject itself by default.

    Raises:
        SubjectError: No such file, module or function, a syntax error in it, or it cannot be called.
    """
    about = f"{option} {name}" if option else name
    where, _, attribute = name.rpartition(":")
    from_file = where.endswith(".py")
    if not attribute.isidentifier() or not (from_file or all(where.split("."))):
        raise SubjectError(
            f"{name!r} names no function.", about=option, hint="give it as module:function or file.py:function."
        )
    module = _from_file(where, folder, about) if from_file else _from_module(where, folder, about)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise SubjectError(
            f"{where} has no function {attribute!r}." if found is None else f"{attribute!r} cannot be called.",
            about=about,
            hint=f"functions there: {', '.join(_functions(module)) or 'none'}.",
        )
    return found  # type: ignore[no-any-return]


def _from_file(where: str, folder: Path, about: str) -> Any:
    path = Path(os.path.normpath(folder / where))
    if not path.is_file():
        raise SubjectError("There is no such file.", about=about, hint="check the path.")
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) == str(path):
        return main  # the script itself, running: importing it again would run it again
    # The folder of the file is where its own imports are looked up, as for a script.
    _look_first_in(path.parent)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    code = compile_script(path, where)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Registered under its own name where that is free: pickling and worker processes look its classes up there.
    sys.modules.setdefault(path.stem, module)
    exec(code, module.__dict__)
    return module


def _from_module(where: str, folder: Path, about: str) -> Any:
    _look_first_in(folder)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(error.name + ".")):
            raise SubjectError(
                f"There is no module {where!r}.", about=about, hint="name it as seen from the current folder."
            ) from error
        raise
    except SyntaxError as error:
        file = os.path.relpath(error.filename, folder) if error.filename else where
        raise SubjectError(
            f"{file} has a syntax error on line {error.lineno}: {error.msg}.",
            about=about,
            hint="import it with `python` first; weaklink diagnoses code that runs.",
        ) from error


def _look_first_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _functions(module: Any) -> list[str]:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted(own)[:8]
