"""The watcher of one run, its intervention, and the evidence they yield. Imported once torch is there, never before."""

from __future__ import annotations

from collections.abc import Callable

from weaklink.collector.assembly import read
from weaklink.collector.capture import RECREATED
from weaklink.collector.capturing import Capturing
from weaklink.collector.declared import Declared
from weaklink.collector.evidence import Evidence, Outcome
from weaklink.collector.functions import load_function
from weaklink.collector.interventions import build
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.job import Job
from weaklink.collector.measuring.parts import parts_of
from weaklink.collector.recording import Recording
from weaklink.collector.recreating import Recreating
from weaklink.collector.step_values import RECORDED
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.watcher import Watcher, WatchSettings


class Instruments:
    """Everything of ours that hangs on torch in this process.

    Args:
        job: What to measure, and under which intervention.
        code: The user's files.
    """

    def __init__(self, job: Job, code: UserCode) -> None:
        self._job = job
        close_up_at = tuple(job.close_up_at) if job.role in ("close_up", "instrument") else ()
        settings = WatchSettings(job.every_step_until, job.keep_initial, looks=job.looks, close_up_at=close_up_at)
        self.watcher = Watcher(code, settings)
        self.watcher.declared = Declared.intended(job.task, job.rule, job.intent)
        if job.instrument is not None:
            self.watcher.use(parts_of(job, self.watcher))
        if job.rule is not None:
            self.watcher.rules.declare_later(self._load_rule)
        self.intervention: Intervention | None = None
        if job.intervention is not None:
            self.intervention = build(job.intervention, job.intervention_parameters)
            self.intervention.attach(self.watcher)
        self.kept_step: Capturing | Recreating | Recording | None = None
        if job.capture is not None:
            self.kept_step = Capturing(job.capture, self.watcher)
        elif job.captured is not None:
            self.kept_step = Recreating(job.captured, job.evidence.with_name(RECREATED), self.watcher)
        elif job.record_values:
            self.kept_step = Recording(job.evidence.with_name(RECORDED), self.watcher)

    def _load_rule(self) -> Callable[..., object]:
        """At the first forward: by then the script's own modules are there, and loading it changes no import order."""
        assert self._job.rule is not None
        return load_function(self._job.rule, self._job.folder, "--rule")

    def install(self, after_step: Callable[[], None], before_backward: Callable[[], None]) -> None:
        """Put the hooks in place; the two callbacks may raise to stop the run."""
        self.watcher.after_step.append(lambda optimizer: after_step())
        self.watcher.before_backward.append(before_backward)
        self.watcher.install()

    def finish(self) -> None:
        """The script is over: bring everything to the host, and take the hooks away."""
        self.watcher.finish()
        if self.kept_step is not None:
            self.kept_step.finish()
        # Models of a function are gone now, those of the module are not: what they were last stands.
        if len(self.watcher.roots.alive()) == len(self.watcher.roots.entries):
            self.watcher.name_everything()
        self.watcher.remove()

    def evidence(self, outcome: Outcome) -> Evidence:
        """Everything measured so far, with this outcome."""
        job, watcher = self._job, self.watcher
        report = self.intervention.report if self.intervention else None
        return read(watcher, job.subject, outcome, watcher.declared, job.pins, report).evidence(job.max_parameters)
