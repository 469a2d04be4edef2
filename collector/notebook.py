"""`with watch() as watched:` around a loop of one's own, in a notebook cell: the chain without a rerun."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from weaklink.collector.assembly import read
from weaklink.collector.chain import LearningChain
from weaklink.collector.declared import Declared
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
    """
    return WatchedLoop(Declared.of(task, expected, None), rule)


class WatchedLoop:
    """One watched loop. `chain` may be asked for while it runs, and afterwards."""

    def __init__(self, declared: Declared, rule: Callable[[Any], Any] | None) -> None:
        self._watcher = Watcher(UserCode(Path.cwd()), WatchSettings(in_process=True))
        self._watcher.declared = declared
        if rule is not None:
            self._watcher.rules.declare(rule)
        self._started = time.monotonic()
        self._outcome = Outcome(ended="stopped", note="read while the loop was still running")
        self._chain: LearningChain | None = None

    def __enter__(self) -> WatchedLoop:
        self._watcher.install()
        self._started = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watcher, outcome = self._watcher, self._outcome
        outcome.ended, outcome.note = "completed", None
        if error is not None:
            outcome.ended = "raised" if isinstance(error, Exception) else "interrupted"
            where = watcher.code.site_of_traceback(trace, f"{type(error).__name__} raised")
            raised = RaisedException(type=type(error).__name__, message=str(error)[:2000], where=where)
            outcome.raised = raised if isinstance(error, Exception) else None
        watcher.flush_losses()
        if len(watcher.roots.alive()) == len(watcher.roots.entries):
            watcher.name_everything()
        watcher.remove()
        self._chain = self._read()

    @property
    def chain(self) -> LearningChain:
        """The learning chain so far; after the `with` statement, of the whole loop."""
        return self._chain if self._chain is not None else self._read()

    def _read(self) -> LearningChain:
        self._outcome.seconds = round(time.monotonic() - self._started, 3)
        return LearningChain(
            read(self._watcher, Subject(kind="process", name="watched loop"), self._outcome, self._watcher.declared)
        )

    def __str__(self) -> str:
        return str(self.chain)

    def __repr__(self) -> str:
        return str(self.chain)

    def _repr_html_(self) -> str:
        return self.chain._repr_html_()
