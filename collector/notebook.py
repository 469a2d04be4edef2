"""`with watch() as watched:` around a loop of one's own, in a notebook cell: the chain without a rerun."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from weaklink.collector.assembly import read
from weaklink.collector.chain import LearningChain
from weaklink.collector.checks import shown, wanted_instead
from weaklink.collector.declared import Declared
from weaklink.collector.errors import LedgerError
from weaklink.collector.evidence import Outcome, RaisedException, Subject
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.watcher import Watcher, WatchSettings


def watch(
    *,
    task: str | None = None,
    expected: str | Sequence[str] | None = None,
    rule: Callable[[Any], Any] | None = None,
) -> WatchedLoop:
    """Watch the training loop in the body of a `with` statement.

    Passive, as for a script: no forward, no random number and no data of ours; every number the loop prints is what it
    prints without. Models and optimizers may have been made before.

    Args:
        task: One sentence: what one input and one target mean.
        expected: Patterns over the names of the parameters meant to be trained; by default all that require a gradient.
        rule: `rule(inputs)` gives the targets that belong to these inputs, where that is known.

    Returns:
        A context manager; afterwards its `chain` is the learning chain, and printing it shows the table.

    Raises:
        LedgerError: An argument of the wrong kind; names it.
    """
    for name, value in (("task", task), ("expected", expected), ("rule", rule)):
        if (wanted := wanted_instead(name, value)) is not None:
            raise LedgerError(f"{name} cannot be {shown(value)}.", about=name, hint=f"pass {wanted}.")
    return WatchedLoop(Declared.of(task, expected, None), rule)


class WatchedLoop:
    """One watched loop. `chain` may be asked for while it runs, and afterwards; it holds no model and no tensor."""

    def __init__(self, declared: Declared, rule: Callable[[Any], Any] | None) -> None:
        self._watcher: Watcher | None = Watcher(UserCode(Path.cwd()), WatchSettings(in_process=True))
        self._watcher.declared = declared
        if rule is not None:
            self._watcher.rules.declare(rule)
        self._entered = False
        self._started = time.monotonic()
        self._chain: LearningChain | None = None
        self._unreadable: Exception | None = None

    def __enter__(self) -> WatchedLoop:
        if self._entered or self._watcher is None:
            raise LedgerError("This one watches a loop already, or did.", about="watch", hint="call watch() anew.")
        self._entered = True
        self._started = time.monotonic()
        self._watcher.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watcher, self._watcher = self._watcher, None
        assert watcher is not None
        try:
            _settle(watcher)
        finally:
            watcher.remove()
        try:
            self._chain = self._read(watcher, _outcome(watcher, error, trace))
        except Exception as problem:  # told when the chain is asked for: the loop's own end is the user's
            self._unreadable = problem

    @property
    def chain(self) -> LearningChain:
        """The learning chain so far; after the `with` statement, of the whole loop.

        Raises:
            LedgerError: It cannot be read, because the loop left its device unusable.
        """
        if self._watcher is not None:
            self._watcher.flush_losses()
            chain = self._read(self._watcher, Outcome(ended="stopped", note="read while the loop was still running"))
            _ = chain.evidence  # made now: the loop goes on
            return chain
        if self._chain is None:
            problem = self._unreadable
            raise LedgerError(
                f"The chain could not be read: {type(problem).__name__}: {problem}",
                about="watch",
                hint="restart the process if its device failed.",
            ) from problem
        return self._chain

    def _read(self, watcher: Watcher, outcome: Outcome) -> LearningChain:
        outcome.seconds = round(time.monotonic() - self._started, 3)
        return LearningChain(read(watcher, Subject(kind="process", name="watched loop"), outcome, watcher.declared))

    def __str__(self) -> str:
        return str(self.chain)

    def __repr__(self) -> str:
        return str(self.chain)

    def _repr_html_(self) -> str:
        return self.chain._repr_html_()


def _settle(watcher: Watcher) -> None:
    """The loop is over: bring everything to the host, and the names up to date."""
    try:
        watcher.flush_losses()
        if len(watcher.roots.alive()) == len(watcher.roots.entries):
            watcher.name_everything()
    except Exception as error:  # a device that an error of the loop left unusable
        watcher.problem("end of the loop", error)


def _outcome(watcher: Watcher, error: BaseException | None, trace: TracebackType | None) -> Outcome:
    if error is None:
        return Outcome(ended="completed")
    if not isinstance(error, Exception):
        return Outcome(ended="exited" if isinstance(error, SystemExit) else "interrupted")
    where = watcher.code.site_of_traceback(trace, f"{type(error).__name__} raised")
    raised = RaisedException(type=type(error).__name__, message=str(error)[:2000], where=where)
    return Outcome(ended="raised", raised=raised)
