"""Looks: forwards, reads and fits of our own, in a copy of the run's process that is thrown away.

A fork holds everything as it is at that moment (models, data, random streams) and shares its memory until it writes to
it; whatever the look does there, the run goes on untouched. Where a fork is impossible (a CUDA context, a system
without it) looks are taken in the process itself, of a rerun that exists for nothing else.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from weaklink.collector.job import CANNOT_COPY, LookMode
from weaklink.collector.stopping import REAL_EXIT

# One look may take so much processor time, all looks of a run together as much as the second number; then they are "not
# measured". Not wall time: what a look shows must not depend on what else the machine does.
LOOK_SECONDS = 20.0
ALL_LOOKS_SECONDS = 60.0
# A look that waits for something that never comes is given up after so many times its processor time on the wall.
_WALL = 5.0
# A look that is wanted of the last moment is held at each of the first moments, then at the 32nd, 64th, 128th, ...
_HELD_EACH = 32
# In the process itself a look that is wanted of the last moment is taken at the 1st, 2nd, 4th, ... time.
_IN_PLACE_LIMIT = 8


@dataclass
class Look:
    """What one look showed (plain JSON data), or why it showed nothing."""

    values: dict[str, Any] | None
    problem: str | None = None


@dataclass
class _Copy:
    """A forked copy of this process: the pipe that lets it go, the pipe it answers on."""

    process: int
    go: int
    answer: int
    deadline: float


class Looks:
    """Takes looks and keeps what they show.

    Args:
        mode: Whether, and where.
        found: Where the results are put, by name; the newest stands.
        looking_away: Entered around a look, so that no hook of ours takes its forwards for the run's.
    """

    def __init__(
        self, mode: LookMode, found: dict[str, Look], looking_away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.mode = mode
        self.found = found
        self._looking_away = looking_away
        self._held: dict[str, _Copy] = {}
        self._asked: dict[str, int] = {}
        self._spent = 0.0

    @property
    def allowed(self) -> bool:
        """Whether a look would be taken now."""
        return self.mode != "off" and self._spent < ALL_LOOKS_SECONDS

    def take(self, name: str, look: Callable[[], dict[str, Any]], deadline: float = LOOK_SECONDS) -> None:
        """Take a look now and wait for it.

        Args:
            name: What its result is kept under.
            look: Called once; its result must be JSON. It may change whatever it likes.
            deadline: Seconds of processor time; a look that takes longer is given up.
        """
        if not self.allowed:
            self._refuse(name)
            return
        started = time.process_time()
        if self._must_stay():
            self.found[name] = self._in_place(look)
        else:
            copy = self._fork(look, deadline)
            _let_go(copy)
            self.found[name] = self._answered(copy)
        self._spent += time.process_time() - started

    def hold(self, name: str, look: Callable[[], dict[str, Any]], deadline: float = LOOK_SECONDS) -> None:
        """Keep this moment for a look at the end; a later moment of the same name replaces it.

        For what is wanted of the last evaluation, which nobody knows to be the last while it happens.
        """
        if not self.allowed:
            self._refuse(name)
            return
        asked = self._asked[name] = self._asked.get(name, 0) + 1
        doubled = not asked & (asked - 1)
        if asked > _HELD_EACH and not doubled:
            return  # a fork costs its page tables
        started = time.process_time()
        if self._must_stay():
            if doubled and asked < 2**_IN_PLACE_LIMIT:
                self.found[name] = self._in_place(look)
        else:
            if name in self._held:
                _let_die(self._held.pop(name))
            self._held[name] = self._fork(look, deadline)
        self._spent += time.process_time() - started

    def forget(self, name: str, reason: str) -> None:
        """Give up a moment that was held: what came of the run since makes the look needless. `reason` is kept."""
        if name in self._held:
            _let_die(self._held.pop(name))
            self.found[name] = Look(None, reason)

    def settle(self) -> None:
        """Let the held moments take their looks, side by side, and wait for them."""
        held, self._held = self._held, {}
        for copy in held.values():
            _let_go(copy)
        for name, copy in held.items():
            self.found[name] = self._answered(copy)

    def _answered(self, copy: _Copy) -> Look:
        found, seconds = _answer(copy)
        self._spent += seconds
        return found

    def _refuse(self, name: str) -> None:
        if name not in self.found and self.mode != "off":
            self.found[name] = Look(None, f"looks had taken {ALL_LOOKS_SECONDS:g} s before")

    def _must_stay(self) -> bool:
        # CUDA does not survive a fork.
        return self.mode == "in_place" or not hasattr(os, "fork") or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]

    def _in_place(self, look: Callable[[], dict[str, Any]]) -> Look:
        if self.mode != "in_place":
            return Look(None, CANNOT_COPY)
        with self._looking_away():
            return _taken(look)

    def _fork(self, look: Callable[[], dict[str, Any]], deadline: float) -> _Copy:
        waits, go = os.pipe()
        answer, tells = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside threads: the copy computes on one thread of its own
            process = os.fork()
        if process == 0:
            os.close(go)
            os.close(answer)
            self._in_copy(look, waits, tells, deadline)
        os.close(waits)
        os.close(tells)
        return _Copy(process, go, answer, deadline)

    def _in_copy(self, look: Callable[[], dict[str, Any]], waits: int, tells: int, deadline: float) -> NoReturn:
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            # A notebook's or a test's stream writes elsewhere.
            sys.stdout = sys.stderr = os.fdopen(silent, "w")
            if os.read(waits, 1) != b"1":  # the run is gone
                REAL_EXIT(0)
            torch.set_num_threads(1)
            _end_after(deadline)
            with self._looking_away():
                found = _taken(look)
            os.write(tells, json.dumps([found.values, found.problem]).encode())
        except BaseException:
            REAL_EXIT(1)
        REAL_EXIT(0)


def _taken(look: Callable[[], dict[str, Any]]) -> Look:
    try:
        return Look(look())
    except Exception as error:  # the user's model or data, called in another way than they are made for
        return Look(None, f"it raised {type(error).__name__}: {str(error)[:200]}")


def _let_go(copy: _Copy) -> None:
    os.write(copy.go, b"1")
    os.close(copy.go)


def _let_die(copy: _Copy) -> None:
    """By signal: another copy, forked later, may hold the other end of its pipe."""
    os.kill(copy.process, signal.SIGKILL)
    os.waitpid(copy.process, 0)
    os.close(copy.go)
    os.close(copy.answer)


def _end_after(seconds: float) -> None:
    """Let the system end this process after so much processor time, which it counts from the fork."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, math.ceil(seconds)), hard))


def _answer(copy: _Copy) -> tuple[Look, float]:
    """Wait for what a copy that was let go has to say. Also the processor time it took, in seconds."""
    text, ended, until = b"", False, time.monotonic() + _WALL * copy.deadline
    while not ended and (left := until - time.monotonic()) > 0:
        if select.select([copy.answer], [], [], left)[0]:
            piece = os.read(copy.answer, 65536)
            text += piece
            ended = not piece
    os.close(copy.answer)
    if not ended:
        os.kill(copy.process, signal.SIGKILL)
    _, status, usage = os.wait4(copy.process, 0)
    seconds = usage.ru_utime + usage.ru_stime
    out_of_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    if not ended or out_of_time:
        return Look(None, f"it took longer than {copy.deadline:g} s"), seconds
    try:
        values, problem = json.loads(text)
    except ValueError:
        return Look(None, "its process died"), seconds
    return Look(values, problem), seconds
