"""Data on stdout: text for people, one JSON object for machines."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

from weaklink.collector.errors import StorageError


def print_json(body: dict[str, Any]) -> None:
    """Exactly one object, on one line, ASCII only: safe in any terminal and any pipe."""
    write(json.dumps(body, ensure_ascii=True, allow_nan=False) + "\n")


def write(text: str) -> None:
    """Write to stdout whatever its encoding; a reader that went away is no error of ours."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        _silence()
        raise StorageError(
            f"The result cannot be written to standard output: {error.strerror}.",
            hint="it is recorded: `weaklink show INCIDENT`.",
        ) from error


def _silence() -> None:
    """Nothing more can be written there; the interpreter would try once again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def width() -> int:
    """Columns of the terminal, at most 120; 100 where there is none."""
    return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))


def color() -> bool:
    """Colour only on a terminal that did not ask for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
