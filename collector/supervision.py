"""Watching one run until it ended: its output, its clock, and Ctrl-C."""

from __future__ import annotations

import contextlib
import hashlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from weaklink.collector.job import Job, JobResult
from weaklink.collector.processes import Process

GRACE_SECONDS = 5.0
OUTPUT_KEPT_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 4096

Progress = Callable[[float, str], None]


class RunOutput:
    """Drains a run's output: all of it hashed and counted, the first megabytes kept, the last lines at hand."""

    def __init__(self, log: Path) -> None:
        self._file = log.open("wb", buffering=0)  # so that it can be followed while the run goes on
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


class Supervisor:
    """Watches one process until it ended: output, progress, deadline, Ctrl-C."""

    def __init__(
        self, process: Process, job: Job, log: Path, progress: Progress | None, stop: threading.Event | None = None
    ) -> None:
        self._process = process
        self._stop = stop
        self._deadline = job.deadline
        self._progress = progress
        self._output = RunOutput(log)
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
                    if self._stop is not None and self._stop.is_set() and not interrupted:
                        raise KeyboardInterrupt
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
        """Tell the run's own process alone: its data loaders are closed by its unwinding; dying first, they'd raise."""
        self._told = time.monotonic()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, number)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
