"""One diagnosis from start to end: observe, localize, propose, freeze, rerun, judge, record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from weaklink.agent.advisors.asking import Asking, Pasting
from weaklink.agent.advisors.base import Advisor
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.baseline import keep_baseline
from weaklink.agent.brief import render_brief
from weaklink.agent.captured import keep_step
from weaklink.agent.close_up import closer
from weaklink.agent.contract import violations
from weaklink.agent.conversation.limits import ATTEMPTS
from weaklink.agent.errors import AdvisorError, ContractNotMetError, NothingMeasuredError
from weaklink.agent.freeze import freeze
from weaklink.agent.horizons import Horizon, cost, horizons, means
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import (
    AdvisorFailed,
    Answered,
    Asked,
    Closed,
    Frozen,
    Observed,
    Opened,
    OperatorFact,
    PlaybookAnswered,
    RerunStarted,
    VerdictReached,
)
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident, new_incident
from weaklink.agent.reporters.reading import effective_divergence
from weaklink.agent.reruns import Recorder, RerunInterruptedError, finished, planned
from weaklink.agent.resuming import changed_sources
from weaklink.agent.runner import Runner, RunRecord
from weaklink.agent.subject_files import script_of
from weaklink.agent.verdict import IncidentStatus, Verdict
from weaklink.agent.verifier import Reruns, judge, shows, status_of, undecided, unjudged
from weaklink.collector.declared import Intent
from weaklink.collector.errors import WeaklinkError
from weaklink.collector.evidence import Evidence, Subject, evidence_text, write_evidence
from weaklink.collector.job import Pins
from weaklink.collector.table.text import printable

# Advisors that answer by fixed rules of ours; what the playbook says is recorded beside any other one's answer.
BY_RULES = (Playbook.name, "operator")


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


def nobody(question: str) -> str | None:
    """The operator where there is no terminal: a question is left open."""
    return None


@dataclass
class Session:
    """Writes one incident. Everything measured is recorded before the next thing starts.

    `facts` are what the operator said; an advisor is shown them as quoted data. `operator` is asked a model's one
    question, and answers or leaves it open.
    """

    options: Options
    advisor: Advisor | Asking | Pasting
    progress: Progress
    facts: tuple[str, ...] = ()
    operator: Callable[[str], str | None] = nobody
    failure: str | None = field(default=None, init=False)
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
                keep_baseline(self.folder, runner.folder, record.evidence, self.writer)
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
        try:
            proposal = self._propose(evidence, runner)
        except KeyboardInterrupt:
            return self._close(IncidentStatus(), 130, "interrupted while the advisor was asked")
        if proposal is None and isinstance(self.advisor, Pasting):
            return self._close(IncidentStatus(cause="unknown"), None, "an answer is waited for: `weaklink answer`")
        if proposal is None:
            self._close(IncidentStatus(), 3, f"the contract was not met in {ATTEMPTS} answers")
            raise ContractNotMetError(self.advisor.name, self.folder)
        status = _suspicion(evidence, proposal)
        if proposal.outcome != "experiment":
            return self._close(status, None, None)
        plan = horizons(evidence, proposal, self.options.horizon)
        frozen = self._freeze(evidence, proposal, plan, runner.pins if runner else Pins())
        if runner is None or not self.options.rerun:
            return self._close(status, None, None)
        return self._verify(evidence, proposal, frozen, plan, runner)

    def _propose(self, evidence: Evidence, runner: Runner | None) -> Proposal | None:
        if self.advisor.name not in BY_RULES:
            # Beside the answer, never in its place.
            own = PlaybookAnswered(proposal=Playbook().advise(evidence, "", []))
            self.writer.append("playbook.answered", own)
        if isinstance(self.advisor, Asking):
            return self._converse(self.advisor, evidence, runner) or self._fall_back(evidence)
        if isinstance(self.advisor, Pasting):
            return self._handed_in(evidence)
        return self._advised(self.advisor, evidence)

    def _handed_in(self, evidence: Evidence) -> Proposal | None:
        """The answer that somebody handed in; None where it is still waited for."""
        return None

    def _advised(self, advisor: Advisor, evidence: Evidence) -> Proposal | None:
        brief = render_brief(evidence, self.facts)
        objections: list[str] = []
        for attempt in range(1, ATTEMPTS + 1):
            self.writer.append("advisor.asked", Asked(advisor=advisor.name, attempt=attempt, brief=brief))
            proposal = advisor.advise(evidence, brief, objections)
            objections = [str(violation) for violation in violations(proposal, evidence)]
            self.writer.append(
                "advisor.answered",
                Answered(advisor=advisor.name, attempt=attempt, proposal=proposal, violations=objections),
            )
            if not objections:
                return proposal
        return None

    def _converse(self, asking: Asking, evidence: Evidence, runner: Runner | None) -> Proposal | None:
        """The model's answer; None where it gave none that holds, which is recorded and told."""
        from weaklink.agent.asked import ask, told  # lazily: the playbook needs nothing of it

        options = self.options
        opening = told(
            evidence,
            self.facts,
            asking.telling,
            options.folder,
            options.incidents,
            measured_here=runner is not None,
            can_rerun=runner is not None and options.rerun,
        )
        try:
            proposal = ask(asking, evidence, opening, runner, self.writer, self.progress, self._operator_says)
        except AdvisorError as error:
            kind = "recording" if asking.spoken is not None else "endpoint"
            self._failed(asking, kind, error.message, error.about, error.hint)
            return None
        if proposal is None:
            self._failed(asking, "contract_not_met", f"the contract was not met in {ATTEMPTS} answers")
        return proposal

    def _operator_says(self, question: str) -> str | None:
        recorded = self.advisor.operator if isinstance(self.advisor, Asking) else ()
        # A model asks once; what the operator said to a recorded one is part of the recording.
        text = recorded[0] if recorded else self.operator(question)
        if text is not None:
            given = datetime.now().astimezone().isoformat(timespec="seconds")
            fact = OperatorFact(number=len(self.facts) + 1, text=text, given=given)
            self.writer.append("operator.fact", fact)
            self.facts = (*self.facts, text)
        return text

    def _failed(
        self, asking: Asking, kind: str, problem: str, about: str | None = None, hint: str | None = None
    ) -> None:
        body = {"advisor": asking.name, "kind": kind, "problem": problem, "about": about, "hint": hint}
        self.writer.append("advisor.failed", AdvisorFailed.model_validate(body))
        self.failure = f"the {asking.name} advisor gave no answer: {problem}"

    def _fall_back(self, evidence: Evidence) -> Proposal:
        """What the user came for is still delivered: the playbook's answer, under the playbook's name."""
        proposal = Playbook().advise(evidence, "", [])
        self.writer.append("advisor.answered", Answered(advisor=Playbook.name, attempt=1, proposal=proposal))
        return proposal

    def _freeze(self, evidence: Evidence, proposal: Proposal, plan: list[Horizon], pins: Pins) -> Frozen:
        frozen = freeze(evidence, proposal, plan, pins, self.options.rule, self.options.intent)
        self.writer.append("prediction.frozen", frozen, durable=True)
        self.progress.say(f"frozen   claim {frozen.claim_sha256}")
        self.progress.say(f"         context {frozen.context_sha256}")
        return frozen

    def _verify(
        self, evidence: Evidence, proposal: Proposal, frozen: Frozen, plan: list[Horizon], runner: Runner
    ) -> Finished:
        self.progress.say(cost(evidence, plan))
        recorder = Recorder(runner, self.writer, evidence)
        suspected = _suspicion(evidence, proposal)
        verdict = None
        try:
            for number, horizon in enumerate(plan):
                last = number == len(plan) - 1
                verdict = self._experiment(evidence, proposal, frozen, horizon, recorder, last)
                if verdict is not None and (last or not undecided(verdict, proposal)):
                    break
        except RerunInterruptedError as stopped:
            return self._close(suspected, 130, f"interrupted in the {stopped.role} rerun")
        except KeyboardInterrupt:
            return self._close(suspected, 130, "interrupted between the reruns")
        except WeaklinkError as error:
            self._close(suspected, error.exit_code, f"a rerun failed: {error}")
            raise
        assert verdict is not None
        status = _settled(evidence, proposal, verdict)
        self.writer.append("verdict.reached", VerdictReached(verdict=verdict, status=status), durable=True)
        return self._close(status, None, None)

    def _experiment(
        self,
        evidence: Evidence,
        proposal: Proposal,
        frozen: Frozen,
        horizon: Horizon,
        recorder: Recorder,
        last: bool,
    ) -> Verdict | None:
        """The experiment at one horizon; None where its control does not show the row and a longer one may."""
        assert proposal.experiment is not None
        runs: dict[str, Evidence | None] = {}
        for batch in recorder.batches(planned(proposal.experiment, means(evidence, proposal))):
            if changed := changed_sources(frozen, self.options.folder):
                return unjudged(proposal, "void", f"the source changed since the freeze: {', '.join(changed[:5])}")
            runs |= recorder.run(batch, horizon)
            if recorder.contaminated:
                text = f"a rerun read what was not there before: {', '.join(recorder.contaminated[:5])}"
                return unjudged(proposal, "void", text)
            if "treatment" not in runs and not last and not shows(runs["control"], proposal.first_row):
                return None
        return judge(proposal, Reruns(observed=evidence, **runs))

    def _finished(self, role: str, record: RunRecord) -> None:
        self.writer.append("rerun.finished", finished(role, record))

    def _close(self, status: IncidentStatus, exit_code: int | None, problem: str | None) -> Finished:
        """Write the last line. Without an exit code, the chain decides: 1 for a divergence or an exception, else 0.

        An advisor that was asked and gave no answer outranks that.
        """
        if exit_code is None and self.failure is not None:
            exit_code, problem = AdvisorError.exit_code, self.failure
        code = exit_code if exit_code is not None else _exit_code(Incident.read(self.folder))
        self.writer.append("incident.closed", Closed(status=status, exit_code=code, problem=problem), durable=True)
        return Finished(Incident.read(self.folder), code, problem)

    def _forget_if_empty(self, error: BaseException) -> None:
        """An incident in which nothing was measured is no incident: a typing error must not leave folders behind."""
        if self.writer.count <= 1:
            import shutil

            self.writer.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def verify_incident(incident: Incident, options: Options, progress: Progress) -> Finished:
    """Run the frozen experiment of an incident that was left without its reruns.

    Raises:
        UsageError: Nothing is frozen, it was already judged, or the sources are not those of the claim.
        RecordDamagedError: The record cannot be continued.
    """
    from weaklink.agent.resuming import check_resumable

    evidence, proposal, frozen, plan = check_resumable(incident, options)
    session = Session(options, Playbook(), progress)  # what is frozen needs no advisor any more
    session.folder = incident.folder
    session.writer = RecordWriter.resume(incident.folder)
    try:
        (session.folder / "logs").mkdir(exist_ok=True)
        with session._runner() as runner:
            return session._verify(evidence, proposal, frozen, plan, runner)
    finally:
        session.writer.close()


def measured(evidence: Evidence) -> bool:
    """Whether the run got far enough for a chain: it trained, or raised after a forward call."""
    outcome = evidence.outcome
    return outcome.backwards > 0 or outcome.steps > 0 or (outcome.forwards > 0 and outcome.raised is not None)


def _suspicion(evidence: Evidence, proposal: Proposal) -> IncidentStatus:
    """The status before any verdict. A chain in which nothing diverges has no cause, whatever somebody suspects."""
    named = any(mechanism.id != "none" for mechanism in proposal.mechanisms)
    return IncidentStatus(cause="suspected" if named and evidence.first_divergence is not None else "unknown")


def _settled(evidence: Evidence, proposal: Proposal, verdict: Verdict) -> IncidentStatus:
    """The status after the verdict.

    Where nothing diverges there is no cause to name, whatever a dissent had tested. Where the whole run leaves a row
    open that a shorter control shows diverge, what was supported there explains nothing of the run.
    """
    if evidence.first_divergence is None:
        return IncidentStatus()
    status = status_of(verdict, proposal)
    if status.cause == "supported" and not shows(evidence, proposal.first_row):
        return _suspicion(evidence, proposal)
    return status


def _why_nothing(evidence: Evidence) -> str:
    return NothingMeasuredError.of(evidence, None).message


def _exit_code(incident: Incident) -> int:
    evidence = incident.evidence
    raised = evidence is not None and evidence.outcome.raised is not None
    return 1 if raised or effective_divergence(incident) is not None else 0
