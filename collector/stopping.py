"""Stopping a script from inside its own loop, and from outside."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

StopReason = Literal["stopped", "deadline", "interrupted"]


# A script's own `os._exit` is watched; ours is not.
REAL_EXIT = os._exit


class StopRun(BaseException):
    """Ends the user's script. No `Exception`: a script that catches those must not swallow it."""

    def __init__(self, reason: StopReason, note: str) -> None:
        super().__init__(note)
        self.reason: StopReason = reason
        self.note = note


class Stopper:
    """Raises `StopRun` at a horizon, a deadline or a signal; again at every step, against a bare `except:`.

    Args:
        horizon: Optimizer steps after which the run ends.
        horizon_backwards: Backward calls after which a run without any step ends.
        deadline: Seconds after which the run ends at its next step.
        give_up: Called after three swallowed stops: writes what there is and leaves the process.
    """

    def __init__(
        self,
        horizon: int | None,
        horizon_backwards: int | None,
        deadline: float | None,
        give_up: Callable[[StopRun], None],
    ) -> None:
        self._horizon = horizon
        self._horizon_backwards = horizon_backwards
        self._ends = None if deadline is None else time.monotonic() + deadline
        self._give_up = give_up
        self._asked: StopRun | None = None
        self._raised = 0
        self._process = os.getpid()
        self.done = False

    def listen(self, for_deadline: bool = True) -> None:
        """SIGTERM means interrupted, SIGUSR1 means that the deadline passed outside, where there is one."""
        signal.signal(signal.SIGTERM, self._signalled)
        if for_deadline and hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, self._signalled)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child the script forked: it dies as it would have died
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if self.done:
            return
        if number == signal.SIGTERM:
            self._asked = StopRun("interrupted", "interrupted by the user")
        else:
            self._asked = StopRun("deadline", "the deadline passed")
        self._raise()

    def after_step(self, steps: int) -> None:
        """Call after every optimizer step with the number executed so far."""
        if self._asked is None and self._horizon is not None and steps >= self._horizon:
            self._asked = StopRun("stopped", f"stopped at its horizon of {self._horizon} steps")
        if self._asked is None and self._ends is not None and time.monotonic() >= self._ends:
            self._asked = StopRun("deadline", "the deadline passed")
        if self._asked is not None:
            self._raise()

    def before_backward(self, steps: int, backwards: int) -> None:
        """Call before every backward with the steps and backward calls so far."""
        limit = self._horizon_backwards
        if steps == 0 and limit is not None and backwards >= limit:
            self._asked = StopRun("stopped", f"stopped after {limit} backward calls without a step")
        if steps == 0 and self._asked is not None:
            self._raise()

    def _raise(self) -> None:
        stop = self._asked
        if stop is None or self.done:
            return
        self._raised += 1
        if self._raised > 3:
            self.done = True
            self._give_up(stop)
        raise stop


def leave(code: int) -> None:
    """End this process at once, whatever threads still run. What it wrote is flushed: no file is closed otherwise."""
    for candidate in gc.get_objects():
        if issubclass(type(candidate), io.IOBase):
            with contextlib.suppress(Exception):
                candidate.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    REAL_EXIT(code)


def run_exit_handlers(wait_for_threads: bool) -> None:
    """What the interpreter would do at its end: join threads (a rerun has no time for them), then `atexit` handlers."""
    import atexit
    import threading

    shutdown: Any = getattr(threading, "_shutdown", None)
    if wait_for_threads and shutdown is not None:
        shutdown()
    atexit._run_exitfuncs()
