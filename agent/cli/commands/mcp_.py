"""`weaklink mcp`: the incidents of a folder, served to a coding agent over standard input and output."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from weaklink.collector.errors import UsageError


def run(incidents: str, inside: str, deadline: float) -> None:
    """Serve until the client goes away.

    Raises:
        UsageError: The `mcp` package is not installed, or there is no such folder.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError(
            "The server for coding agents needs the package `mcp`, which is not installed.",
            about="weaklink mcp",
            hint='pip install "weaklink[mcp]"',
        )
    folder = Path(inside)
    if not folder.is_dir():
        raise UsageError("There is no such folder.", about=f"--in {inside}", hint="name the project's folder.")
    from weaklink.agent.mcp.server import serve

    serve(Path(incidents), folder, deadline)
