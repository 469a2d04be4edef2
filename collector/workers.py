"""Running jobs in other processes: the fork server's client. No torch here.

One server a diagnosis, started at once so that it imports torch while the command line still prepares.
"""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from weaklink.collector.errors import InterpreterError
from weaklink.collector.evidence import EVIDENCE_SCHEMA
from weaklink.collector.job import Job, JobResult
from weaklink.collector.processes import (
    BOOT,
    Channel,
    ForkedProcess,
    FreshProcess,
    Process,
    cannot_start,
    missing_in,
    refusal,
)
from weaklink.collector.supervision import GRACE_SECONDS, Progress, Supervisor

START_SECONDS = 180.0

# What torch and its libraries read once, when they are loaded: set by a script, they need an interpreter of their own.
_READ_AT_IMPORT = ("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "CUDA_", "PYTORCH_", "TORCH", "NCCL_", "ROCR_", "HIP_")


def needs_fresh_interpreter(script: Path) -> bool:
    """Whether the script sets variables that torch reads when it is imported: a preloaded torch would ignore them."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_READ_AT_IMPORT)
        for node in ast.walk(tree)
    )


class Workers:
    """Starts the fork server of one interpreter and runs jobs in it, from one thread or several.

    Args:
        python: Interpreter that has torch and weaklink.
        environment: Variables for the server and all its runs.
    """

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self.python = python
        self.environment = dict(environment)
        self.about: dict[str, Any] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        # On macOS a fork of a process that has loaded its frameworks may crash; Windows has none. Both take fresh ones.
        self._can_fork = sys.platform.startswith("linux") and hasattr(socket, "send_fds")

    def start(self) -> None:
        """Start the server; returns at once. The first `run` waits for it.

        Raises:
            InterpreterError: There is no such interpreter.
        """
        if not self._can_fork or self._server is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = BOOT.format(module="server", call=f"serve({theirs.fileno()})")
        try:
            self._server = subprocess.Popen(
                [self.python, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=self.environment,
            )
        except OSError as error:
            raise cannot_start(self.python, error) from error
        finally:
            theirs.close()
        self._channel = Channel(ours)

    def wait_until_ready(self) -> None:
        """Wait for the server's handshake.

        Raises:
            InterpreterError: torch or weaklink is missing there, it speaks another schema, or it never answers.
        """
        if self.about or self._channel is None:
            return
        connected = self._channel.socket
        connected.settimeout(START_SECONDS)
        try:
            message = connected.recv(1 << 16)
        except TimeoutError:
            message = b""
        if not message:
            raise self._start_failure()
        self.about = json.loads(message)["ready"]
        connected.settimeout(None)
        if self.about["schema"] != EVIDENCE_SCHEMA:
            raise InterpreterError(
                f"weaklink there writes {self.about['schema']}, this one reads {EVIDENCE_SCHEMA}.",
                about=self.python,
                hint="install the same version of weaklink in both.",
            )

    def _start_failure(self) -> InterpreterError:
        assert self._server is not None
        self._server.kill()
        out, err = self._server.communicate()
        return missing_in(self.python, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def run(
        self,
        job: Job,
        log: Path,
        fresh: bool = False,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
    ) -> JobResult:
        """Run a job to its end, its deadline or an interruption.

        Args:
            job: What to run; its evidence file is written by the worker.
            log: File for the run's output, stdout and stderr together, up to 4 MiB.
            fresh: In an interpreter of its own instead of a fork of the preloaded one.
            progress: Called about twice a second with the seconds so far and the last line printed.
            stop: Once set, the run is interrupted as by Ctrl-C; for a thread, which Ctrl-C does not reach.

        Raises:
            SubjectError, InterventionError: The worker refused the job.
            InterpreterError: The interpreter lacks something.
            WorkerError: Our own side of the worker failed.
            KeyboardInterrupt: After the worker was told and has written its evidence.
        """
        refused = job.evidence.with_name(job.evidence.name + ".refused")
        refused.unlink(missing_ok=True)
        if fresh or not self._can_fork:
            process: Process = FreshProcess(self.python, self.environment, job, refused)
        else:
            self.start()
            self.wait_until_ready()
            assert self._channel is not None
            process = ForkedProcess(self._channel, job, refused)
        result = Supervisor(process, job, log, progress, stop).until_the_end()
        if refused.exists():
            raise refusal(refused)
        if result.exit_code == 3 and isinstance(process, FreshProcess) and not job.evidence.exists():
            raise missing_in(self.python, result.output_tail, "")
        return result

    def close(self) -> None:
        """End the server."""
        if self._channel is not None:
            self._channel.socket.close()
            self._channel = None
        if self._server is not None:
            if not self.about:
                self._server.kill()  # still importing torch: nothing runs in it yet
            try:
                self._server.wait(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            for pipe in (self._server.stdout, self._server.stderr):
                if pipe is not None:
                    pipe.close()
            self._server = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def base_environment(hash_seed: str) -> dict[str, str]:
    """The user's own environment, with the hash seed fixed and no byte code written beside their sources."""
    environment = dict(os.environ)
    if environment.get("PYTHONHASHSEED", "random") == "random":
        environment["PYTHONHASHSEED"] = hash_seed
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment


def this_python() -> str:
    """The interpreter weaklink itself is installed in."""
    return sys.executable
