"""Going on in the same incident: what the operator adds, another answer, another prediction.

Nothing that was recorded is touched and nothing that was judged is judged again: an earlier prediction, its reruns and
its verdict stay what they are, and what is frozen now stands on its own reruns.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from weaklink.agent.advisors.asking import Asking, Pasting
from weaklink.agent.advisors.base import Advisor
from weaklink.agent.advisors.by_hand import ByHand, chosen
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import ExperimentChoice, Proposal
from weaklink.agent.record.bodies import Continued, OperatorFact
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident, Round
from weaklink.agent.reporters.reading import advisor_of, choice_text, status_of
from weaklink.agent.runner import Runner
from weaklink.agent.session import BY_RULES, Finished, Options, Session, nobody
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.errors import UsageError, WeaklinkError
from weaklink.collector.evidence import Evidence

LONGEST_FACT = 2000  # an advisor is shown a fact whole


@dataclass(frozen=True)
class Addition:
    """What the operator adds: facts in words, and the next experiment where it is chosen by hand."""

    facts: tuple[str, ...] = ()
    experiment: ExperimentChoice | None = None


def continue_incident(
    incident: Incident,
    addition: Addition,
    options: Options,
    advisor: Advisor | Asking | Pasting,
    progress: Progress,
    operator: Callable[[str], str | None] = nobody,
) -> Finished:
    """One more round: facts, answer, contract, frozen prediction, reruns, verdict.

    Where more is declared than before, the run is observed again and held against it.

    Args:
        incident: As it was read; at least one run of it was observed.
        addition: What the operator adds.
        options: As for the diagnosis, with all that is declared now.
        advisor: Who answers, unless the operator chose the experiment.
        progress: Where to report.
        operator: Is asked a model's one question.

    Raises:
        UsageError: There is nothing to go on from or nothing new, a fact cannot be taken, the chosen experiment cannot
            be judged here, or the sources are not those that were observed.
        RecordDamagedError: The record cannot be continued.
    """
    anew = declares_more(incident, options)
    # Whoever is asked now, or the playbook after somebody else: that alone is something new.
    another_voice = isinstance(advisor, (Asking, Pasting)) or advisor_of(incident) not in BY_RULES
    check_continuable(incident, addition, options, anew, another_voice)
    if addition.experiment is not None:
        advisor = ByHand(addition.experiment)
    session = Continuing(options, advisor, progress, operator=operator, incident=incident, addition=addition, anew=anew)
    return session.go_on()


def declares_more(incident: Incident, options: Options) -> bool:
    """Whether something is declared now that the evidence was not held against."""
    held, evidence = incident.options, incident.evidence
    before = (evidence.task if evidence else None, held.get("rule"), held.get("user_code") or [], incident.declared)
    return before != (options.task, options.rule, list(options.user_code), options.intent.said)


def check_continuable(
    incident: Incident, addition: Addition, options: Options, anew: bool, another_voice: bool = False
) -> None:
    """Refuse before anything is written what could lead nowhere.

    With `another_voice` somebody else than the playbook is asked, which is something new by itself.

    Raises:
        UsageError: As `continue_incident` says.
    """
    about, evidence = str(incident.folder), incident.evidence
    if evidence is None:
        raise UsageError("Nothing was observed in this incident.", about=about, hint="diagnose again for a new one.")
    if not (addition.facts or addition.experiment or anew or another_voice):
        hint = 'say what you know (--fact "..."), declare it (--trainable, --rule, ...), or choose an --experiment.'
        if incident.frozen is not None and incident.verdict is None:
            hint = f"its frozen experiment was never run: `weaklink verify {about}`."
        raise UsageError("There is nothing new to go on with.", about=about, hint=hint)
    for fact in addition.facts:
        if not fact.strip() or len(fact) > LONGEST_FACT:
            raise UsageError(
                f"A fact has between 1 and {LONGEST_FACT} characters.", about=fact[:80], hint="split it into several."
            )
    if evidence.subject.kind == "process" and anew:
        raise UsageError(
            "This was measured inside a process of your own; nothing more can be held against it.",
            about=evidence.subject.name,
            hint="put the system into a function that returns it: `weaklink diagnose train.py:build`.",
        )
    runs = (anew or options.rerun) and evidence.subject.kind != "process"
    if runs and not evidence.sources:
        raise UsageError(
            "The observation names no source, so nothing says that this is the same script.",
            about=about,
            hint="diagnose again where the script is.",
        )
    if runs and (changed := changed_since(evidence, options.folder)):
        raise UsageError(
            f"The sources are not those that were observed: {', '.join(changed[:5])}.",
            about=str(options.folder),
            hint="go on where the sources are as they were (--in DIR); a changed script is diagnosed anew.",
        )
    if addition.experiment is not None and not anew:
        _must_decide(evidence, addition.experiment)


def changed_since(evidence: Evidence, folder: Path) -> list[str]:
    """Source files of the observed run that are missing or have other bytes now."""
    changed = []
    for source in evidence.sources:
        try:
            now = hashlib.sha256((folder / source.path).read_bytes()).hexdigest()
        except OSError:
            now = ""
        if now != source.sha256:
            changed.append(source.path)
    return changed


def _must_decide(evidence: Evidence, choice: ExperimentChoice) -> None:
    row = evidence.first_divergence
    if row is None:
        raise UsageError("No row diverges, so no experiment has anything to decide.", about=choice.name)
    found = chosen(evidence, row, choice)
    if isinstance(found, str):
        raise UsageError(found, about=f"--experiment {choice.name}", hint="`weaklink experiments` lists all of them.")


class _TestedBeforeError(Exception):
    """The answer is the experiment of an earlier round, which has its verdict."""

    def __init__(self, before: Round) -> None:
        super().__init__()
        assert before.verdict is not None, "it was judged"
        self.before, self.status = before, before.verdict.status


@dataclass
class Continuing(Session):
    """The session of a further round. Its writer goes on with the incident's record."""

    incident: Incident = field(kw_only=True)
    addition: Addition = field(kw_only=True)
    anew: bool = field(kw_only=True)
    ended: bool = field(default=False, init=False)

    def go_on(self) -> Finished:
        """The round, from the operator's facts to the verdict.

        Raises:
            WeaklinkError: The run cannot be observed again or a rerun failed; the record says so.
        """
        self.folder = self.incident.folder
        self.writer = RecordWriter.resume(self.folder)
        try:
            (self.folder / "logs").mkdir(exist_ok=True)
            self._reopen()
            with self._runner_if_any() as runner:
                if runner is None or not self.anew:
                    assert self.incident.evidence is not None
                    return self._conclude(self.incident.evidence, runner, interrupted=False)
                return self._observe_again(runner)
        except _TestedBeforeError as tested:
            return self._close(tested.status, None, _judged_already(tested.before, self.incident, self.advisor.name))
        except WeaklinkError as error:
            if not self.ended:
                self._close(IncidentStatus(), error.exit_code, error.message)
            raise
        finally:
            self.writer.close()

    def _reopen(self) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        known, options, choice = len(self.incident.facts), self.options, self.addition.experiment
        numbers = range(known + 1, known + 1 + len(self.addition.facts))
        opening = {
            "round": len(self.incident.rounds) + 1,
            "created": now,
            "weaklink": version("weaklink"),
            "advisor": self.advisor.name,
            "facts": list(numbers),
            "experiment": None if choice is None else choice_text(choice),
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
        for number, text in zip(numbers, self.addition.facts, strict=True):
            self.writer.append("operator.fact", OperatorFact(number=number, text=text, given=now))
        self.writer.append("incident.continued", Continued.model_validate(opening))
        self.facts = (*(fact.text for fact in self.incident.facts), *self.addition.facts)

    @contextlib.contextmanager
    def _runner_if_any(self) -> Iterator[Runner | None]:
        """None where nothing is rerun: the script may be elsewhere, and is not needed."""
        if not self.anew and (not self.options.rerun or self.options.subject.kind == "process"):
            yield None
            return
        with self._runner() as runner:
            yield runner

    def _observe_again(self, runner: Runner) -> Finished:
        record = runner.observe()
        if record.evidence is None:
            raise KeyboardInterrupt
        self._observed(record.evidence, record)
        self._say_observed(record.evidence)
        evidence, interrupted = record.evidence, record.result.interrupted
        if not interrupted:
            evidence, interrupted = self._closer(record, evidence, runner)
        return self._conclude(evidence, runner, interrupted=interrupted)

    def _propose(self, evidence: Evidence, runner: Runner | None) -> Proposal | None:
        proposal = super()._propose(evidence, runner)
        if proposal is not None and proposal.outcome == "experiment":
            before = next((each for each in self.incident.rounds if each.judged(proposal)), None)
            if before is not None:
                raise _TestedBeforeError(before)
        return proposal

    def _close(self, status: IncidentStatus, exit_code: int | None, problem: str | None) -> Finished:
        """A round that judged nothing leaves the cause as the rounds before it had it, where the chain begins alike."""
        before, now = status_of(self.incident), Incident.read(self.folder)
        if before.cause in ("supported", "refuted") and now.verdict is None and _first(now) == _first(self.incident):
            status = before
        self.ended = True
        return super()._close(status, exit_code, problem)


def _first(incident: Incident) -> str | None:
    row = incident.evidence.first_divergence if incident.evidence else None
    return row.id if row is not None else None


def _judged_already(before: Round, incident: Incident, advisor: str) -> str:
    number = incident.rounds.index(before) + 1
    claim = f", claim {before.frozen.claim_sha256[:12]}" if before.frozen is not None else ""
    text = before.verdict.verdict.text if before.verdict is not None else ""
    then = "another prediction needs another experiment, or other mechanisms"
    if advisor in BY_RULES:
        then = (
            "the built-in playbook reads no prose: declare what you know (--trainable, --frozen, --rule, --classes), "
            "or choose another experiment (--experiment NAME)"
        )
    return f"the answer is the prediction of round {number}{claim}, which was judged already ({text}); {then}"
