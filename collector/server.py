"""The fork server: imports torch once, then every run starts in hundredths of a second.

One single-threaded process that computes nothing itself (a process that has started worker threads must not fork).
It reads jobs from a Unix socket, each with the ends of two pipes for the run's output, forks, and reports exits.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from weaklink.collector.evidence import EVIDENCE_SCHEMA

MESSAGE_BYTES = 1 << 20


def preload() -> dict[str, Any]:
    """Import what every script will need. The first optimizer imports `torch._dynamo`: half of torch's own time."""
    import torch

    with contextlib.suppress(ImportError):
        import torch._dynamo
    import weaklink.collector.instruments
    import weaklink.collector.run  # noqa: F401

    return {"torch": str(torch.__version__), "python": sys.version.split()[0], "schema": EVIDENCE_SCHEMA}


def serve(descriptor: int) -> None:
    """Serve jobs on the inherited socket until the other end closes."""
    channel = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the parent decides
    about = preload()
    # What is here now is shared by every run and never garbage: no fork's collector needs to walk, or copy, it.
    gc.freeze()
    channel.send(json.dumps({"ready": about}).encode())
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([channel.fileno(), reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            running -= _reap(channel)
        if channel.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 4)
            if not message:
                _end(running)
                return
            running.add(_start(channel, json.loads(message), descriptors, (reader, writer)))


def _start(channel: socket.socket, request: dict[str, Any], descriptors: list[int], wakeup: tuple[int, int]) -> int:
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for end in wakeup:
            os.close(end)
        channel.close()
        _become_worker(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    channel.send(json.dumps({"started": child}).encode())
    return child


def _end(running: set[int]) -> None:
    """The command line is gone, perhaps killed: no run of its goes on without it."""
    for child in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)


def _become_worker(request: dict[str, Any], descriptors: list[int]) -> None:
    """In the child: own session, own output, then the job. Never returns."""
    from weaklink.collector.job import Job
    from weaklink.collector.run import run_job_and_leave

    os.setsid()
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for descriptor, standard in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    run_job_and_leave(Job.model_validate(request["job"]), Path(request["refused"]))


def _reap(channel: socket.socket) -> set[int]:
    ended: set[int] = set()
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if child == 0:
            return ended
        ended.add(child)
        channel.send(json.dumps({"exited": child, "status": status}).encode())
