"""Running a user's script or module as Python itself would: `__main__`, arguments, search path.

A fresh `__main__` module, kept for good: pickling, `inspect.getsource`, worker processes and exit handlers look it up.
"""

from __future__ import annotations

import builtins
import runpy
import sys
import types
from pathlib import Path

from weaklink.collector.errors import SubjectError
from weaklink.collector.evidence import Subject


def compile_script(path: Path, name: str) -> types.CodeType:
    """The script's code, by its own encoding. `name` is what the user called it.

    Raises:
        SubjectError: The file is missing, unreadable or no Python; names the line of a syntax error.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise SubjectError(
            f"The script cannot be read: {error.strerror}.", about=name, hint="check the path."
        ) from error
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None:  # a NUL byte: no line to name
            raise SubjectError(
                f"The script is no Python source: {error.msg}.", about=name, hint="check the path."
            ) from error
        raise SubjectError(
            f"The script has a syntax error on line {error.lineno}: {error.msg}.",
            about=f"{name}:{error.lineno}",
            hint="run it with `python` first; weaklink diagnoses scripts that run.",
        ) from error
    except ValueError as error:  # a NUL byte, in older Pythons
        raise SubjectError(f"The script is no Python source: {error}.", about=name, hint="check the path.") from error


def run_subject(subject: Subject, folder: Path) -> None:
    """Run the subject to its end in this process; exceptions and SystemExit pass through.

    Args:
        subject: Script path (relative to `folder` or absolute) or module name.
        folder: The working folder; the process must already be in it.
    """
    if subject.kind == "module":
        sys.argv = [subject.name, *subject.argv]
        sys.path.insert(0, str(folder))
        runpy.run_module(subject.name, run_name="__main__", alter_sys=True)
        return
    path = Path(subject.name)
    absolute = path if path.is_absolute() else folder / path
    code = compile_script(absolute, subject.name)
    sys.argv = [subject.name, *subject.argv]
    sys.path.insert(0, str(absolute.parent))
    main = types.ModuleType("__main__")
    main.__file__ = str(absolute)
    main.__builtins__ = builtins  # type: ignore[attr-defined]  # ours is a dictionary here, the script's a module
    main.__annotations__ = {}
    main.__spec__ = None
    main.__loader__ = None
    sys.modules["__main__"] = main
    sys.modules["__mp_main__"] = main
    exec(code, main.__dict__)
