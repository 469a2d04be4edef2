"""Running jobs in other processes: the fork server's client, deadlines, output and interruption. No torch here.

One server a diagnosis, started at once so that it imports torch while the command line still prepares. A run's output
is drained here: hashed whole, kept up to a limit, never passed on.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from weaklink.collector.errors import InterpreterError, SubjectError, WeaklinkError, WorkerError
from weaklink.collector.evidence import EVIDENCE_SCHEMA
from weaklink.collector.job import Job, JobResult

GRACE_SECONDS = 5.0
START_SECONDS = 180.0
OUTPUT_KEPT_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 4096

# What torch and its libraries read once, when they are loaded: set by a script, they need an interpreter of their own.
_READ_AT_IMPORT = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "GOMP_",
    "CUDA_",
    "PYTORCH_",
    "TORCH_",
    "NCCL_",
    "ROCR_",
    "HIP_",
)

# The user's folder may hold a `torch.py` or a `types.py`: our own start looks into no folder of theirs.
_BOOT = """
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

Progress = Callable[[float, str], None]


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
    """Starts the fork server of one interpreter and runs jobs in it, one after another.

    Args:
        python: Interpreter that has torch and weaklink.
        environment: Variables for the server and all its runs.
    """

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self.python = python
        self.environment = dict(environment)
        self.about: dict[str, Any] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
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
        code = _BOOT.format(module="server", call=f"serve({theirs.fileno()})")
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
            raise InterpreterError(
                f"This Python cannot be started: {error.strerror}.",
                about=self.python,
                hint="give the path of an interpreter with --python.",
            ) from error
        finally:
            theirs.close()
        self._channel = ours

    def wait_until_ready(self) -> None:
        """Wait for the server's handshake.

        Raises:
            InterpreterError: torch or weaklink is missing there, it speaks another schema, or it never answers.
        """
        if self.about or self._channel is None:
            return
        self._channel.settimeout(START_SECONDS)
        try:
            message = self._channel.recv(1 << 16)
        except TimeoutError:
            message = b""
        if not message:
            raise self._start_failure()
        self.about = json.loads(message)["ready"]
        self._channel.settimeout(None)
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

    def run(self, job: Job, log: Path, fresh: bool = False, progress: Progress | None = None) -> JobResult:
        """Run a job to its end, its deadline or an interruption.

        Args:
            job: What to run; its evidence file is written by the worker.
            log: File for the run's output, stdout and stderr together, up to 4 MiB.
            fresh: In an interpreter of its own instead of a fork of the preloaded one.
            progress: Called about twice a second with the seconds so far and the last line printed.

        Raises:
            SubjectError, InterventionError: The worker refused the job.
            InterpreterError: The interpreter lacks something.
            WorkerError: Our own side of the worker failed.
            KeyboardInterrupt: After the worker was told and has written its evidence.
        """
        refused = job.evidence.with_name(job.evidence.name + ".refused")
        refused.unlink(missing_ok=True)
        if fresh or not self._can_fork:
            process: _Process = _FreshProcess(self.python, self.environment, job, refused)
        else:
            self.start()
            self.wait_until_ready()
            assert self._channel is not None
            process = _ForkedProcess(self._channel, job, refused)
        result = _Watch(process, job, log, progress).until_the_end()
        if refused.exists():
            raise refusal(refused)
        if result.exit_code == 3 and '"missing"' in result.output_tail:
            raise missing_in(self.python, result.output_tail, "")
        return result

    def close(self) -> None:
        """End the server."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._server is not None:
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
    return [python, "-c", _BOOT.format(module="single", call="main()"), str(job), str(refused)]


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


class _Process:
    """A worker's process: its group, its output's reading end, and how to learn that it ended."""

    pid: int
    output: int

    def exit_descriptor(self) -> int | None:
        """A descriptor that becomes readable when there may be news of the exit; None where there is none."""
        raise NotImplementedError

    def poll(self) -> int | None:
        """Exit code (negative: signal) once it ended, else None."""
        raise NotImplementedError


class _ForkedProcess(_Process):
    def __init__(self, channel: socket.socket, job: Job, refused: Path) -> None:
        self._channel = channel
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        request = json.dumps({"job": job.model_dump(mode="json"), "refused": str(refused)}).encode()
        try:
            socket.send_fds(channel, [request], [null, writer, writer])
            answer = json.loads(channel.recv(1 << 16))
        except (OSError, ValueError) as error:
            os.close(reader)
            raise WorkerError(f"The fork server is gone: {error}.", hint="start the command again.") from error
        finally:
            os.close(null)
            os.close(writer)
        self.pid = int(answer["started"])
        self.output = reader
        self._code: int | None = None

    def exit_descriptor(self) -> int | None:
        return self._channel.fileno()

    def poll(self) -> int | None:
        while self._code is None:
            try:
                message = self._channel.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not message:
                raise WorkerError("The fork server died.", hint="start the command again.")
            news = json.loads(message)
            if news.get("exited") == self.pid:
                self._code = os.waitstatus_to_exitcode(news["status"])
        return self._code


class _FreshProcess(_Process):
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
            raise InterpreterError(
                f"This Python cannot be started: {error.strerror}.", about=python, hint="give another with --python."
            ) from error
        self.pid = self._popen.pid
        assert self._popen.stdout is not None
        self.output = os.dup(self._popen.stdout.fileno())
        self._popen.stdout.close()

    def exit_descriptor(self) -> int | None:
        return None

    def poll(self) -> int | None:
        return self._popen.poll()


class _Output:
    """Drains a run's output: all of it hashed and counted, the first megabytes kept, the last lines at hand."""

    def __init__(self, log: Path) -> None:
        self._file = log.open("wb")
        self._hash = hashlib.sha256()
        self.bytes = 0
        self._tail = b""

    def take(self, data: bytes) -> None:
        self._hash.update(data)
        room = OUTPUT_KEPT_BYTES - self.bytes
        if room > 0:
            self._file.write(data[:room])
        self.bytes += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES:]

    @property
    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace")

    @property
    def last_line(self) -> str:
        lines = [line for line in self.tail.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        if self.bytes > OUTPUT_KEPT_BYTES:
            self._file.write(f"\n[weaklink: {self.bytes - OUTPUT_KEPT_BYTES} more bytes were not kept]\n".encode())
        self._file.close()


class _Watch:
    """Watches one process until it ended: output, progress, deadline, Ctrl-C."""

    def __init__(self, process: _Process, job: Job, log: Path, progress: Progress | None) -> None:
        self._process = process
        self._deadline = job.deadline
        self._progress = progress
        self._output = _Output(log)
        self._started = time.monotonic()
        self._told: float | None = None
        self._deadline_hit = False

    def until_the_end(self) -> JobResult:
        interrupted = False
        selector = selectors.DefaultSelector()
        os.set_blocking(self._process.output, False)
        selector.register(self._process.output, selectors.EVENT_READ)
        news = self._process.exit_descriptor()
        if news is not None:
            selector.register(news, selectors.EVENT_READ)
        code: int | None = None
        try:
            while code is None:
                try:
                    selector.select(timeout=0.2 if news is not None else 0.05)
                    self._drain()
                    code = self._process.poll()
                    self._watch_the_clock()
                except KeyboardInterrupt:
                    if interrupted:
                        self._signal(signal.SIGKILL)
                        raise
                    interrupted = True
                    self._tell(signal.SIGTERM)
            self._drain()
            self._signal(signal.SIGKILL)  # whatever the run left behind in its session
        finally:
            selector.close()
            self._output.close()
            os.close(self._process.output)
        return JobResult(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            deadline_hit=self._deadline_hit,
            interrupted=interrupted,
            seconds=time.monotonic() - self._started,
            output_sha256=self._output.sha256,
            output_bytes=self._output.bytes,
            output_tail=self._output.tail,
        )

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._process.output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            self._output.take(data)

    def _watch_the_clock(self) -> None:
        now = time.monotonic()
        if self._progress is not None:
            self._progress(now - self._started, self._output.last_line)
        if self._told is not None:
            if now - self._told > GRACE_SECONDS:
                self._signal(signal.SIGKILL)
        elif self._deadline is not None and now - self._started > self._deadline:
            self._deadline_hit = True
            self._tell(getattr(signal, "SIGUSR1", signal.SIGTERM))

    def _tell(self, number: int) -> None:
        self._told = time.monotonic()
        self._signal(number)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def base_environment(hash_seed: str) -> dict[str, str]:
    """The user's own environment, with the hash seed fixed and no byte code written beside their sources."""
    environment = dict(os.environ)
    environment["PYTHONHASHSEED"] = environment.get("PYTHONHASHSEED", hash_seed)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment


def this_python() -> str:
    """The interpreter weaklink itself is installed in."""
    return sys.executable
