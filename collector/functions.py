"""Functions that the user names on the command line: `package.module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weaklink.collector.errors import SubjectError


def load_function(name: str, folder: Path, option: str) -> Callable[..., Any]:
    """Import the function of that name. The user's own exceptions at import pass through.

    Args:
        name: `module:function` or `file.py:function`, the file relative to `folder`.
        folder: The working folder; modules are looked up there first.
        option: What the name was given as, for the error.

    Raises:
        SubjectError: No such file, module or function, or it cannot be called.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute.isidentifier():
        raise SubjectError(
            f"{name!r} names no function.", about=option, hint="give it as module:function or file.py:function."
        )
    module = _from_file(where, folder, option) if where.endswith(".py") else _from_module(where, folder, option)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise SubjectError(
            f"{where} has no function {attribute!r}." if found is None else f"{attribute!r} cannot be called.",
            about=option,
            hint=f"functions there: {', '.join(_functions(module)) or 'none'}.",
        )
    return found  # type: ignore[no-any-return]


def _from_file(where: str, folder: Path, option: str) -> Any:
    path = Path(where) if Path(where).is_absolute() else folder / where
    if not path.is_file():
        raise SubjectError("There is no such file.", about=f"{option} {where}", hint="check the path.")
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) == str(path):
        return main  # the script itself, running: importing it again would run it again
    # The folder of the file is where its own imports are looked up, as for a script.
    _look_first_in(path.parent)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered under its own name where that is free: pickling and worker processes look its classes up there.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _from_module(where: str, folder: Path, option: str) -> Any:
    _look_first_in(folder)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(error.name + ".")):
            raise SubjectError(
                f"There is no module {where!r}.", about=option, hint="name it as seen from the current folder."
            ) from error
        raise


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
