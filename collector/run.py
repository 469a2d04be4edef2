"""One run of a user's script: the body of every worker, and of `weaklink observe`.

Torch-free by itself: in a fresh interpreter the script imports torch when it wants to, after setting whatever variables
it sets, and the instruments are put in place at that moment. In a fork of the server torch is there already.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from weaklink.collector.errors import StorageError, WeaklinkError
from weaklink.collector.evidence import Environment, Evidence, Outcome, RaisedException, write_evidence
from weaklink.collector.guard import Guard
from weaklink.collector.job import Job
from weaklink.collector.launch import run_subject
from weaklink.collector.postimport import after_import
from weaklink.collector.seeds import shift_seeds
from weaklink.collector.stopping import REAL_EXIT, Stopper, StopRun, leave, run_exit_handlers
from weaklink.collector.watching.sites import UserCode

if TYPE_CHECKING:
    from weaklink.collector.instruments import Instruments

# Evidence is written this often at sampled steps, and at others; never for more than a hundredth of the run's time.
FLUSH_SECONDS = 2.0
UNSAMPLED_FLUSH_SECONDS = 10.0
FLUSH_SHARE = 100.0


class ScriptRun:
    """Runs one job and keeps its evidence on disk up to date, so that a killed run leaves what it had measured."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.outcome = Outcome(ended="killed", note="the run was cut off; this is what had been measured")
        self.code = UserCode(job.folder, tuple(job.user_code))
        self.stopper = Stopper(job.horizon, job.horizon_backwards, job.deadline, self._give_up)
        self._instruments: Instruments | None = None
        self._refused: WeaklinkError | None = None
        self._started = time.monotonic()
        self._process = os.getpid()
        self._flushed = 0.0
        self._flush_took = 0.0
        self._problems: list[str] = []

    def run(self) -> int:
        """Run to the end; the evidence file is written. Returns the exit code the script would have had.

        Raises:
            WeaklinkError: The script cannot be started, or the intervention cannot be built.
        """
        job = self.job
        os.chdir(job.folder)
        os.environ.update(job.environment)
        tempfile.tempdir = None  # looked up anew: TMPDIR may have changed since the server started
        if job.pins is not None:
            random.seed(job.pins.python)
            after_import("numpy", self._pin_numpy)
            if job.pins.offset:
                shift_seeds(job.pins.offset)
        if job.guard is not None:
            guard = Guard(job.guard)
            guard.install()
            after_import("torch", guard.watch_torch_save)
        after_import("torch", self._put_instruments)
        if self._refused is not None:
            raise self._refused
        self.stopper.listen(for_deadline=not self._is_the_users_own or job.deadline is not None)
        os._exit = self._left  # type: ignore[assignment]
        code = self._call_script()
        if self._instruments is not None:
            self._guarded(self._instruments.finish)
            if self._instruments.watcher.rules.refused is not None:
                raise self._instruments.watcher.rules.refused
        try:
            self._guarded(self.write)
        except OSError as error:
            refused = StorageError(
                f"The evidence cannot be written: {error.strerror}.",
                about=str(job.evidence),
                hint="free some space, or choose another place with --out.",
            )
            if self._is_the_users_own:
                print(f"weaklink: {refused}", file=sys.stderr)  # the run itself has lost nothing
                return code
            raise refused from error
        return code

    @property
    def _is_the_users_own(self) -> bool:
        """Whether this is the user's run, in place: whatever fails on our side, it ends as it would without us."""
        return self.job.guard is None

    def _guarded(self, action: Callable[[], None]) -> None:
        """What we do after the user's own run has ended; only a rerun of ours may fail by it."""
        try:
            action()
        except OSError:
            raise
        except Exception as error:
            if not self._is_the_users_own:
                raise
            self._problems.append(f"{action.__name__}: {type(error).__name__}: {error}")
            print(f"weaklink: a bug of weaklink's own in {self._problems[-1]}", file=sys.stderr)

    def _left(self, code: int) -> NoReturn:
        """The script leaves by `os._exit`, where no `finally` runs: what it showed is written first."""
        if os.getpid() == self._process and not self.stopper.done:
            self.stopper.done = True
            self.outcome.ended, self.outcome.note = "exited", "the script left with os._exit"
            self.outcome.exit_code = int(code) & 0xFF
            with contextlib.suppress(Exception):
                if self._instruments is not None:
                    self._instruments.finish()
                self.write()
        REAL_EXIT(code)

    def _put_instruments(self) -> None:
        try:
            from weaklink.collector.instruments import Instruments

            self._instruments = Instruments(self.job, self.code)
            self._instruments.install(self._after_step, self._before_backward)
        except WeaklinkError as error:
            self._refused = error  # told once we are out of the script's import statement
        except Exception as error:
            if not self._is_the_users_own:
                raise
            if self._instruments is not None:
                self._instruments.watcher.remove()
                self._instruments = None
            self._problems.append(f"putting the hooks in place: {type(error).__name__}: {error}")

    def _pin_numpy(self) -> None:
        assert self.job.pins is not None
        sys.modules["numpy"].random.seed(self.job.pins.numpy)

    def _call_script(self) -> int:
        try:
            try:
                self._run_subject()
            finally:
                self.stopper.done = True  # a signal from here on comes too late to stop anything
        except StopRun as stop:
            self._ended_by(stop)
            return self._code_of(stop)
        except SystemExit as stop:
            self.outcome.ended, self.outcome.note = "exited", None
            self.outcome.exit_code = _exit_code(stop)
            return self.outcome.exit_code
        except WeaklinkError:
            raise
        except KeyboardInterrupt:
            self.outcome.ended, self.outcome.note = "interrupted", "interrupted by the user"
            return 130
        except BaseException as error:
            self._raised(error)
            return 1
        self.outcome.ended, self.outcome.note, self.outcome.exit_code = "completed", None, 0
        return 0

    def _run_subject(self) -> None:
        if self.job.subject.kind != "factory":
            run_subject(self.job.subject, self.job.folder)
            return
        from weaklink.collector.factory import run_factory  # imports torch, which puts the instruments in place

        if self._refused is not None:
            raise self._refused
        assert self._instruments is not None
        run_factory(self.job.subject.name, self.job.folder, self._instruments.watcher, probe=self.job.role == "observe")

    def _ended_by(self, stop: StopRun) -> None:
        self.outcome.ended, self.outcome.note = stop.reason, stop.note

    def _raised(self, error: BaseException) -> None:
        where = self.code.site_of_traceback(error.__traceback__, f"{type(error).__name__} raised")
        self.outcome.ended, self.outcome.note, self.outcome.exit_code = "raised", None, 1
        if isinstance(error, (OSError, ImportError)) and self._instruments is not None:
            self._instruments.watcher.tape.phase = "between"  # a file or a package is no link of the chain
        message = self._without_scratch(str(error))[:2000]
        self.outcome.raised = RaisedException(type=type(error).__name__, message=message, where=where)
        # The script's own hook, where it has one: it may log the exception somewhere.
        own = error.with_traceback(_from_the_script_on(error.__traceback__, self.code))
        sys.excepthook(type(own), own, own.__traceback__)

    def _without_scratch(self, text: str) -> str:
        """The user's paths instead of the scratch copy's, which is gone when the message is read."""
        return text.replace(str(self.job.folder) + os.sep, "").replace(str(self.job.folder), ".")

    def _code_of(self, stop: StopRun) -> int:
        """A run of the user's own that was terminated says so, as any process does."""
        return 128 + signal.SIGTERM if self._is_the_users_own and stop.reason == "interrupted" else 0

    def _give_up(self, stop: StopRun) -> None:
        self._ended_by(stop)
        with contextlib.suppress(OSError):
            self.write()
        leave(self._code_of(stop))

    def _after_step(self) -> None:
        assert self._instruments is not None
        watcher, now = self._instruments.watcher, time.monotonic()
        first = watcher.tape.steps == 1
        wait = max(FLUSH_SECONDS if watcher.sampling else UNSAMPLED_FLUSH_SECONDS, FLUSH_SHARE * self._flush_took)
        if first or now - self._flushed > wait:
            self._flush(now)
        self.stopper.after_step(watcher.tape.steps)

    def _before_backward(self) -> None:
        assert self._instruments is not None
        tape = self._instruments.watcher.tape
        if tape.steps == 0 and tape.backwards in (1, 2, 10):
            self._flush(time.monotonic())
        self.stopper.before_backward(tape.steps, tape.backwards)

    def _flush(self, now: float) -> None:
        self._flushed = now
        try:
            self.write()
        except Exception as error:
            if self._instruments is not None:
                self._instruments.watcher.problem("writing evidence", error)
        self._flush_took = time.monotonic() - now

    def write(self) -> None:
        """Write the evidence as it stands."""
        self.outcome.seconds = round(time.monotonic() - self._started, 3)
        write_evidence(self.evidence(), self.job.evidence)

    def evidence(self) -> Evidence:
        """Everything measured so far; of a script that never imported torch only how it ended."""
        if self._instruments is not None:
            evidence = self._instruments.evidence(self.outcome)
            evidence.problems += self._problems
            return evidence
        return Evidence(
            subject=self.job.subject,
            task=self.job.task,
            outcome=self.outcome,
            environment=Environment(
                torch="not imported",
                python=platform.python_version(),
                platform=f"{platform.system()} {platform.machine()}",
            ),
            branch="raised" if self.outcome.raised else "not_measured",
            rows=[],
            problems=self._problems,
        )


def run_job_and_leave(job: Job, refused: Path) -> None:
    """Worker entry: never returns. A refusal of ours is written to `refused` as one line of JSON.

    The user's own run (no guard) ends as Python ends it; a rerun leaves at once, after the exit handlers.
    """
    try:
        code = ScriptRun(job).run()
        if job.guard is None:
            sys.exit(code)
        with contextlib.suppress(Exception):
            run_exit_handlers(wait_for_threads=job.role == "observe")
        leave(code)
    except WeaklinkError as error:
        body = {"class": type(error).__name__, "message": error.message, "about": error.about, "hint": error.hint}
        refused.write_text(json.dumps(body), encoding="utf-8")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
    leave(70)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF  # what the operating system keeps of it
    print(stop.code, file=sys.stderr)
    return 1


def _from_the_script_on(trace: TracebackType | None, code: UserCode) -> TracebackType | None:
    """The traceback as the user knows it: from the script's own first frame."""
    start = trace
    while start is not None and code.relative(start.tb_frame.f_code.co_filename) is None:
        start = start.tb_next
    if start is not None:
        return start
    # A factory's loop is ours: its frames say nothing, those of torch below them do.
    own = str(Path(__file__).parent)
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(own):
        trace = trace.tb_next
    return trace
