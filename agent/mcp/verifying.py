"""The tool that reruns: `weaklink verify` in a process of its own, told to stop when whoever asked goes away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from weaklink.agent.answering import recorded_options
from weaklink.agent.mcp.shelf import Shelf
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.reading import status_of
from weaklink.agent.resuming import check_resumable
from weaklink.agent.subject_files import is_file_name, script_of, split_function
from weaklink.collector.errors import UsageError, WeaklinkError, WorkerError

# Neither the current folder nor a variable of the user's puts a file of his before one of ours.
_START = "import sys; sys.path[:] = [p for p in sys.path if p]; from weaklink.agent.cli.main import main; main()"
# A rerun that is told to stop has 5 seconds, another one beside it as many; then what it wrote is undone.
GRACE_SECONDS = 20.0
LONGEST_OUTPUT = 8 * 2**20

Tell = Callable[[str], Awaitable[None]]


def check_verifiable(incident: Incident, folder: Path) -> None:
    """Refuse at once what cannot be rerun, or is no run of this folder.

    Raises:
        UsageError: Nothing is frozen, it was judged, the sources are not those of the claim, or the recorded script or
            rule lies elsewhere.
    """
    options = recorded_options(incident, folder, None, 600.0, rerun=True)
    place = split_function(options.rule)[0] if options.rule is not None else None
    rule = place if place is not None and is_file_name(place) else None
    for file in (script_of(options.subject), rule):
        if file is not None and not (folder / file).resolve().is_relative_to(folder.resolve()):
            raise UsageError(
                "What the record would run lies outside the folder that is served.",
                about=file,
                hint="verify it on the command line: `weaklink verify INCIDENT`.",
            )
    check_resumable(incident, options)


async def verify(shelf: Shelf, name: str, folder: Path, deadline: float, tell: Tell) -> dict[str, Any]:
    """Rerun the frozen experiment of an incident, and return what the reruns say.

    Cancelled, it stops the rerun in flight, and the record is closed as interrupted.

    Args:
        shelf: Where the incident lies.
        name: Its name.
        folder: The folder to run in.
        deadline: Seconds for each rerun.
        tell: Is told each line of progress.

    Raises:
        WeaklinkError: It cannot be rerun, or a rerun failed.
    """
    incident = await anyio.to_thread.run_sync(shelf.read, name)
    await anyio.to_thread.run_sync(check_verifiable, incident, folder)
    words = ["verify", str(incident.folder), "--in", str(folder), "--deadline", str(deadline), "--json"]
    code, out = await _run([sys.executable, "-c", _START, *words], tell)
    body = _object(out)
    if body is None or "error" in body:
        raise _failure(body, code, name)
    return await anyio.to_thread.run_sync(_judged, incident.folder, code)


def _judged(folder: Path, code: int) -> dict[str, Any]:
    incident = Incident.read(folder)
    reached = incident.verdict.verdict if incident.verdict else None
    return {
        "incident": folder.name,
        "verdict": None if reached is None else plain(reached),
        "status": plain(status_of(incident)),
        "problem": incident.closed.problem if incident.closed else None,
        "claim_sha256": incident.frozen.claim_sha256 if incident.frozen else None,
        "exit_code": code,
        "head": incident.head,
    }


async def _run(command: list[str], tell: Tell) -> tuple[int, str]:
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        # In a session of its own: Ctrl-C at the server's terminal reaches it once, through us.
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    kept: list[str] = []
    try:
        async with anyio.create_task_group() as both:
            both.start_soon(_keep, process.stdout, kept)
            both.start_soon(_pass_on, process.stderr, tell)
            code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)
    return code, "".join(kept)


async def _keep(stream: ByteReceiveStream, kept: list[str]) -> None:
    size = 0
    async for text in TextReceiveStream(stream, errors="replace"):
        size += len(text)
        if size <= LONGEST_OUTPUT:
            kept.append(text)


async def _pass_on(stream: ByteReceiveStream, tell: Tell) -> None:
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        rest = rest[-4096:]
        for line in lines:
            if line.strip():
                await tell(line)


async def _stop(process: Process) -> None:
    """As Ctrl-C would; killed only if that is not heard."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)  # which weaklink takes as Ctrl-C, even where that is ignored
        with anyio.move_on_after(GRACE_SECONDS):
            await process.wait()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await process.aclose()


def _object(out: str) -> dict[str, Any] | None:
    try:
        body = json.loads(out)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _failure(body: dict[str, Any] | None, code: int, name: str) -> WeaklinkError:
    if body is None:
        return WorkerError(
            f"The rerun ended with exit code {code} and said nothing.",
            about=name[:200],
            hint="run `weaklink verify` on the command line to see why.",
        )
    return WorkerError(str(body.get("message")), about=body.get("about"), hint=body.get("hint"))
