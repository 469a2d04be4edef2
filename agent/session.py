"""One diagnosis from start to end: observe, localize, propose, freeze, rerun, judge, record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from weaklink.agent.advisors.base import Advisor
from weaklink.agent.brief import render_brief
from weaklink.agent.captured import keep_step
from weaklink.agent.close_up import closer
from weaklink.agent.contract import violations
from weaklink.agent.errors import ContractNotMetError, NothingMeasuredError
from weaklink.agent.freeze import freeze
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import (
    Answered,
    Asked,
    Closed,
    Frozen,
    Observed,
    Opened,
    RerunFinished,
    RerunStarted,
    VerdictReached,
)
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident, new_incident
from weaklink.agent.reporters.reading import effective_divergence
from weaklink.agent.runner import Runner, RunRecord
from weaklink.agent.subject_files import script_of
from weaklink.agent.verdict import IncidentStatus
from weaklink.agent.verifier import Reruns, judge, status_of
from weaklink.collector.declared import Intent
from weaklink.collector.errors import WeaklinkError
from weaklink.collector.evidence import Evidence, Subject, Value, evidence_text, write_evidence
from weaklink.collector.job import Pins
from weaklink.collector.table.text import printable

ATTEMPTS = 3
SHORTEST_HORIZON = 50
LONGEST_HORIZON = 1000
PLACEBO = "placebo"


@dataclass(frozen=True)
class Options:
    """What a diagnosis was asked for. `deadline` is in seconds a run, `horizon` in optimizer steps a rerun.

    `rule` is `module:function` or `file.py:function`, `intent` what else was declared; with `offline` the observed run
    too finds no model hub. A step that turns non-finite is kept up to `capture_limit` bytes; 0 keeps none.
    """

    subject: Subject
    folder: Path
    python: str
    incidents: Path
    deadline: float = 600.0
    horizon: int | None = None
    rerun: bool = True
    task: str | None = None
    user_code: tuple[str, ...] = ()
    rule: str | None = None
    offline: bool = False
    intent: Intent = field(default_factory=Intent)
    capture_limit: int = 256 * 2**20


@dataclass
class Finished:
    """The incident as recorded, the exit code, and the signal to stop if Ctrl-C ended it."""

    incident: Incident
    exit_code: int
    problem: str | None = None


@dataclass
class Session:
    """Writes one incident. Everything measured is recorded before the next thing starts."""

    options: Options
    advisor: Advisor
    progress: Progress
    folder: Path = field(init=False)
    writer: RecordWriter = field(init=False)

    def diagnose_script(self) -> Finished:
        """The whole way for a script, reruns included (unless `rerun` is off).

        Raises:
            SubjectError, InterpreterError, StorageError: Before anything was measured; no incident is left behind.
        """
        self._open("script")
        try:
            with self._runner() as runner:
                record = runner.observe()
                if record.evidence is None:
                    raise KeyboardInterrupt
                self._observed(record.evidence, record)
                self._say_observed(record.evidence)
                evidence, interrupted = record.evidence, record.result.interrupted
                if not interrupted:
                    evidence, interrupted = self._closer(record, evidence, runner)
                if not interrupted:
                    keep_step(runner, evidence, self.folder, self.options.capture_limit, self.progress)
                return self._conclude(evidence, runner, interrupted=interrupted)
        except BaseException as error:
            self._forget_if_empty(error)
            raise
        finally:
            self.writer.close()

    def diagnose_evidence(self, evidence: Evidence, source: Path) -> Finished:
        """The way for an evidence file, or a folder of them: it ends after freezing: the script may be elsewhere."""
        self._open("evidence")
        try:
            read = source.read_bytes() if source.is_file() else (evidence_text(evidence) + "\n").encode()
            sha = hashlib.sha256(read).hexdigest()
            self.writer.append("evidence.observed", Observed(evidence=evidence, evidence_sha256=sha))
            return self._conclude(evidence, None, interrupted=evidence.outcome.ended == "interrupted")
        finally:
            self.writer.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _open(self, source: str) -> None:
        options = self.options
        script = script_of(options.subject)
        stem = options.subject.name if script is None else Path(script).stem
        created = datetime.now().astimezone()
        self.folder = new_incident(options.incidents, stem, created)
        self.writer = RecordWriter(self.folder)
        (self.folder / "logs").mkdir()
        self.writer.append(
            "incident.opened",
            Opened.model_validate(
                {
                    "id": self.folder.name,
                    "created": created.isoformat(timespec="seconds"),
                    "weaklink": version("weaklink"),
                    "subject": options.subject,
                    "source": source,
                    "folder": str(options.folder),
                    "python": options.python,
                    "advisor": self.advisor.name,
                    "options": {
                        "deadline": options.deadline,
                        "horizon": options.horizon,
                        "rerun": options.rerun,
                        "task": options.task,
                        "user_code": list(options.user_code),
                        "rule": options.rule,
                    },
                    "declared": options.intent.said,
                }
            ),
        )

    def _runner(self) -> Runner:
        options = self.options
        return Runner(
            options.subject,
            options.folder,
            options.python,
            self.folder / "logs",
            options.deadline,
            self.progress,
            options.task,
            options.user_code,
            options.incidents,
            options.rule,
            options.offline,
            options.intent,
        )

    def _observed(self, evidence: Evidence, record: RunRecord) -> None:
        write_evidence(evidence, self.folder / "evidence.json")
        self.writer.append(
            "evidence.observed",
            Observed(
                evidence=evidence,
                evidence_sha256=hashlib.sha256((self.folder / "evidence.json").read_bytes()).hexdigest(),
                output_sha256=record.result.output_sha256,
                output_bytes=record.result.output_bytes,
            ),
            durable=True,
        )

    def _closer(self, record: RunRecord, evidence: Evidence, runner: Runner) -> tuple[Evidence, bool]:
        """Take the close-up, and record the merged evidence as the last observation."""

        def started(horizon: int) -> None:
            body = {"role": "close_up", "intervention": None, "horizon": horizon}
            self.writer.append("rerun.started", RerunStarted.model_validate(body))

        found, interrupted = closer(runner, evidence, started, lambda rerun: self._finished("close_up", rerun))
        if found != evidence:
            self._observed(found, record)
        return found, interrupted

    def _say_observed(self, evidence: Evidence) -> None:
        outcome = evidence.outcome
        self.progress.say(
            f"observed {printable(evidence.subject.name, 80)}: {outcome.backwards} backward calls, "
            f"{outcome.steps} steps, {outcome.seconds:.1f} s, {outcome.ended}"
        )

    def _conclude(self, evidence: Evidence, runner: Runner | None, interrupted: bool) -> Finished:
        if not measured(evidence) and interrupted:
            return self._close(IncidentStatus(), 130, "interrupted before anything was measured")
        if not measured(evidence):
            self._close(IncidentStatus(), 130 if interrupted else 2, _why_nothing(evidence))
            raise NothingMeasuredError.of(evidence, self.folder)
        if interrupted:
            return self._close(IncidentStatus(), 130, "interrupted while observing")
        proposal = self._propose(evidence)
        if proposal is None:
            self._close(IncidentStatus(), 3, f"the contract was not met in {ATTEMPTS} answers")
            raise ContractNotMetError(self.advisor.name, self.folder)
        status = IncidentStatus(cause="suspected" if proposal.mechanisms else "unknown")
        if proposal.outcome != "experiment":
            return self._close(status, None, None)
        horizon = self.options.horizon or default_horizon(evidence)
        frozen = self._freeze(evidence, proposal, horizon, runner.pins if runner else Pins())
        if runner is None or not self.options.rerun:
            return self._close(status, None, None)
        return self._verify(evidence, proposal, frozen, horizon, runner)

    def _propose(self, evidence: Evidence) -> Proposal | None:
        brief = render_brief(evidence)
        objections: list[str] = []
        for attempt in range(1, ATTEMPTS + 1):
            self.writer.append("advisor.asked", Asked(advisor=self.advisor.name, attempt=attempt, brief=brief))
            proposal = self.advisor.advise(evidence, brief, objections)
            objections = [str(violation) for violation in violations(proposal, evidence)]
            self.writer.append(
                "advisor.answered",
                Answered(advisor=self.advisor.name, attempt=attempt, proposal=proposal, violations=objections),
            )
            if not objections:
                return proposal
        return None

    def _freeze(self, evidence: Evidence, proposal: Proposal, horizon: int, pins: Pins) -> Frozen:
        frozen = freeze(evidence, proposal, horizon, pins, self.options.rule, self.options.intent)
        self.writer.append("prediction.frozen", frozen, durable=True)
        self.progress.say(f"frozen   claim {frozen.claim_sha256}")
        self.progress.say(f"         context {frozen.context_sha256}")
        return frozen

    def _verify(self, evidence: Evidence, proposal: Proposal, frozen: Frozen, horizon: int, runner: Runner) -> Finished:
        assert proposal.experiment is not None
        self.progress.say(cost(evidence, horizon))
        runs: dict[str, Evidence | None] = {}
        plan: list[tuple[str, str | None, dict[str, Value]]] = [
            ("control", None, {}),
            ("control_again", None, {}),
            (PLACEBO, PLACEBO, {}),
            ("treatment", proposal.experiment.name, proposal.experiment.parameters),
        ]
        for role, intervention, parameters in plan:
            started = RerunStarted.model_validate(
                {"role": role, "intervention": intervention, "parameters": parameters, "horizon": horizon}
            )
            self.writer.append("rerun.started", started)
            try:
                record = runner.rerun(role, evidence, horizon, intervention, parameters)  # type: ignore[arg-type]
            except WeaklinkError as error:
                self._close(IncidentStatus(cause="suspected"), error.exit_code, f"the {role} rerun failed: {error}")
                raise
            runs[role] = record.evidence
            self._finished(role, record)
            if record.result.interrupted:
                return self._close(IncidentStatus(cause="suspected"), 130, f"interrupted in the {role} rerun")
        verdict = judge(proposal, Reruns(observed=evidence, **runs))
        status = status_of(verdict, proposal)
        self.writer.append("verdict.reached", VerdictReached(verdict=verdict, status=status), durable=True)
        return self._close(status, None, None)

    def _finished(self, role: str, record: RunRecord) -> None:
        self.writer.append(
            "rerun.finished",
            RerunFinished.model_validate(
                {
                    "role": role,
                    "evidence": record.evidence,
                    "problem": record.problem,
                    "seconds": round(record.result.seconds, 3),
                    "output_sha256": record.result.output_sha256,
                    "files_written": record.files_written,
                }
            ),
        )

    def _close(self, status: IncidentStatus, exit_code: int | None, problem: str | None) -> Finished:
        """Write the last line. Without an exit code, the chain decides: 1 for a divergence or an exception, else 0."""
        code = exit_code if exit_code is not None else _exit_code(Incident.read(self.folder))
        self.writer.append("incident.closed", Closed(status=status, exit_code=code, problem=problem), durable=True)
        return Finished(Incident.read(self.folder), code, problem)

    def _forget_if_empty(self, error: BaseException) -> None:
        """An incident in which nothing was measured is no incident: a typing error must not leave folders behind."""
        if self.writer.count <= 1:
            import shutil

            self.writer.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def verify_incident(incident: Incident, options: Options, progress: Progress, advisor: Advisor) -> Finished:
    """Run the frozen experiment of an incident that was left without its reruns.

    Raises:
        UsageError: Nothing is frozen, it was already judged, or the sources are not those of the claim.
        RecordDamagedError: The record cannot be continued.
    """
    from weaklink.agent.resuming import check_resumable

    evidence, proposal, frozen, horizon = check_resumable(incident, options)
    session = Session(options, advisor, progress)
    session.folder = incident.folder
    session.writer = RecordWriter.resume(incident.folder)
    try:
        (session.folder / "logs").mkdir(exist_ok=True)
        with session._runner() as runner:
            return session._verify(evidence, proposal, frozen, horizon, runner)
    finally:
        session.writer.close()


def default_horizon(evidence: Evidence) -> int:
    """Twice the step at which the evidence appeared, at least 50: half of all faults show by then, most by 200."""
    row = evidence.first_divergence
    onset = row.step if row is not None and row.step is not None else 1
    # Where the row dates from an early step, its consequence may show much later.
    turned = row.values.get("nonfinite_from_step") if row is not None else None
    onset = max(onset, turned) if isinstance(turned, int) else onset
    return max(SHORTEST_HORIZON, min(2 * onset, LONGEST_HORIZON))


def cost(evidence: Evidence, horizon: int) -> str:
    """One line on what the reruns will take, from what the observed run took."""
    steps = max(evidence.outcome.steps, evidence.outcome.backwards, 1)
    share = min(1.0, horizon / steps)
    seconds = 4 * max(evidence.outcome.seconds * share, 0.05)
    return f"rerun    4 reruns of up to {min(horizon, steps)} steps, about {max(1, round(seconds))} s in all"


def measured(evidence: Evidence) -> bool:
    """Whether the run got far enough for a chain: it trained, or raised after a forward call."""
    outcome = evidence.outcome
    return outcome.backwards > 0 or outcome.steps > 0 or (outcome.forwards > 0 and outcome.raised is not None)


def _why_nothing(evidence: Evidence) -> str:
    return NothingMeasuredError.of(evidence, None).message


def _exit_code(incident: Incident) -> int:
    evidence = incident.evidence
    raised = evidence is not None and evidence.outcome.raised is not None
    return 1 if raised or effective_divergence(incident) is not None else 0
