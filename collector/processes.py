"""Starting a worker process: a fork of the server, or an interpreter of its own; and why one did not start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from weaklink.collector.errors import InterpreterError, SubjectError, WeaklinkError, WorkerError
from weaklink.collector.job import Job

# The user's folder may hold a `torch.py` or a `types.py`: our own start looks into no folder of theirs.
BOOT = """
import sys
sys.path[:] = [p for p in sys.path if p]
import json
from importlib.util import find_spec
try:
    if find_spec("torch") is None:
        raise ImportError("no torch", name="torch")
    import weaklink.collector.{module} as entry
except ImportError as error:
    print(json.dumps({{"missing": error.name or str(error), "text": str(error)}}), flush=True)
    raise SystemExit(3)
entry.{call}
"""


def cannot_start(python: str, error: OSError) -> InterpreterError:
    """The error for an interpreter that is none."""
    return InterpreterError(
        f"This Python cannot be started: {error.strerror}.",
        about=python,
        hint="give the path of an interpreter with --python.",
    )


def missing_in(python: str, out: str, err: str) -> InterpreterError:
    """The error for an interpreter that could not start our side, from what it printed."""
    for line in out.splitlines():
        try:
            missing = str(json.loads(line)["missing"])
        except (ValueError, KeyError, TypeError):
            continue
        package = "weaklink" if missing.startswith("weaklink") else "torch" if missing.startswith("torch") else missing
        return InterpreterError(
            f"{package} is not installed in this Python.",
            about=python,
            hint=f"install it there ({python} -m pip install {package}), or name another interpreter with --python.",
        )
    last = next((line for line in reversed(err.strip().splitlines()) if line.strip()), "it printed nothing")
    return InterpreterError(
        f"This Python did not start: {last[:300]}",
        about=python,
        hint="try it by hand: does `python -c 'import torch'` work there?",
    )


def single_command(python: str, job: Path, refused: Path) -> list[str]:
    """The command that runs one job in a fresh interpreter."""
    return [python, "-c", BOOT.format(module="single", call="main()"), str(job), str(refused)]


def refusal(path: Path) -> WeaklinkError:
    """The error that a worker wrote down when it refused its job."""
    import weaklink.collector.errors as tree

    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return WorkerError("A worker refused its job without a reason.", hint="please report this.")
    kind = getattr(tree, str(body.get("class")), SubjectError)
    error: WeaklinkError = kind(body["message"], about=body.get("about"), hint=body.get("hint"))
    return error


class Process(ABC):
    """A worker's process: its group, its output's reading end, and how to learn that it ended."""

    pid: int
    output: int

    @abstractmethod
    def exit_descriptor(self) -> int | None:
        """A descriptor that becomes readable when there may be news of the exit; None where there is none."""

    @abstractmethod
    def poll(self) -> int | None:
        """Exit code (negative: signal) once it ended, else None."""


class Channel:
    """The socket to one fork server, shared by the threads that wait for its runs: news of one is kept for its own."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}

    def start(self, request: bytes, descriptors: list[int]) -> int:
        """Ask for a run; the process that it became.

        Raises:
            OSError, ValueError: The server is gone.
        """
        with self._lock:
            socket.send_fds(self.socket, [request], descriptors)
            while True:
                news = json.loads(self.socket.recv(1 << 16))
                if "started" in news:
                    return int(news["started"])
                self._note(news)

    def code(self, pid: int) -> int | None:
        """The exit code of that run, negative for a signal; None while it goes on.

        Raises:
            WorkerError: The server died.
        """
        with self._lock:
            while pid not in self._codes:
                try:
                    message = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return None
                if not message:
                    raise WorkerError("The fork server died.", hint="start the command again.")
                self._note(json.loads(message))
            return self._codes[pid]

    def _note(self, news: dict[str, int]) -> None:
        if "exited" in news:
            self._codes[news["exited"]] = os.waitstatus_to_exitcode(news["status"])


class ForkedProcess(Process):
    def __init__(self, channel: Channel, job: Job, refused: Path) -> None:
        self._channel = channel
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        request = json.dumps({"job": job.model_dump(mode="json"), "refused": str(refused)}).encode()
        try:
            self.pid = channel.start(request, [null, writer, writer])
        except (OSError, ValueError) as error:
            os.close(reader)
            raise WorkerError(f"The fork server is gone: {error}.", hint="start the command again.") from error
        finally:
            os.close(null)
            os.close(writer)
        self.output = reader

    def exit_descriptor(self) -> int | None:
        return self._channel.socket.fileno()

    def poll(self) -> int | None:
        return self._channel.code(self.pid)


class FreshProcess(Process):
    def __init__(self, python: str, environment: Mapping[str, str], job: Job, refused: Path) -> None:
        path = job.evidence.with_name(job.evidence.name + ".job")
        path.write_text(job.model_dump_json(), encoding="utf-8")
        try:
            self._popen = subprocess.Popen(
                single_command(python, path, refused),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise cannot_start(python, error) from error
        self.pid = self._popen.pid
        assert self._popen.stdout is not None
        self.output = os.dup(self._popen.stdout.fileno())
        self._popen.stdout.close()

    def exit_descriptor(self) -> int | None:
        return None

    def poll(self) -> int | None:
        return self._popen.poll()
