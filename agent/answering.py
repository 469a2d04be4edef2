"""An answer from outside becomes a round of its incident: the contract first, then the frozen prediction, then reruns.

Whoever answers is held to what a model at an endpoint is held to. An answer that breaks a rule ends its round, with the
rules it broke in the record; the incident can be answered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weaklink.agent.advisors.asking import Pasting, Telling
from weaklink.agent.advisors.given import LARGEST_ANSWER, LONGEST_LABEL, Given
from weaklink.agent.asked import Told, told
from weaklink.agent.continuing import Addition, Continuing, check_continuable
from weaklink.agent.contract import violations
from weaklink.agent.conversation.answers import read_answer
from weaklink.agent.conversation.looks import ReadLines
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.errors import ContractNotMetError
from weaklink.agent.progress import Progress
from weaklink.agent.proposal import Proposal, SourceCitation
from weaklink.agent.record.bodies import AdvisorFailed, Answered, Asked
from weaklink.agent.record.incident import Incident
from weaklink.agent.session import Finished, Options
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.declared import Intent
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Evidence
from weaklink.collector.workers import this_python

# Cited lines that are looked up; an answer that cites more is not read more closely.
MOST_CITED = 64


def answer_incident(
    incident: Incident, given: Given, options: Options, progress: Progress, telling: Telling | None = None
) -> Finished:
    """One round with this answer; without `options.rerun` it ends when the prediction is frozen.

    Args:
        incident: As it was read; its run was observed.
        given: The answer.
        options: As recorded (`recorded_options`), and whether to rerun.
        progress: Where to report.
        telling: What whoever answered was told by `weaklink prompt`.

    Raises:
        UsageError: The answer is empty or too large, or the incident cannot be answered here.
        ContractNotMetError: The answer breaks the contract. The message lists every violation, and so does the record.
        RecordDamagedError: The record cannot be continued.
    """
    check_given(given)
    check_continuable(incident, Addition(), options, anew=False, another_voice=True)
    advisor = Pasting(telling or Telling(), given.name)
    session = Answering(options, advisor, progress, incident=incident, addition=Addition(), anew=False, given=given)
    return session.go_on()


def check_given(given: Given) -> None:
    """Refuse what is no answer at all before anything is recorded.

    Raises:
        UsageError: It is empty or too large, or its label is.
    """
    if not given.text.strip():
        raise UsageError("The answer is empty.", about=given.name, hint="hand in the whole reply, prose and all.")
    if len(given.text.encode("utf-8", "surrogatepass")) > LARGEST_ANSWER:
        raise UsageError(
            "The answer is larger than any answer.", about=given.name, hint="hand in one reply alone, at most 1 MiB."
        )
    if given.said_by is not None and not 0 < len(given.said_by.strip()) <= LONGEST_LABEL:
        raise UsageError(
            f"A label has between 1 and {LONGEST_LABEL} characters.", about="--said-by", hint="name who answered."
        )


def recorded_options(incident: Incident, folder: Path, python: str | None, deadline: float, rerun: bool) -> Options:
    """The options of a further round in which nothing is declared that was not declared before.

    Args:
        incident: As it was read.
        folder: The working folder.
        python: Interpreter to rerun in; None: weaklink's own.
        deadline: Seconds for each rerun.
        rerun: Whether to rerun at all.
    """
    code, rule = incident.options.get("user_code"), incident.options.get("rule")
    return Options(
        subject=incident.opened.subject,
        folder=folder.resolve(),
        python=python or this_python(),
        incidents=incident.folder.parent,
        deadline=deadline,
        rerun=rerun,
        task=incident.evidence.task if incident.evidence else None,
        user_code=tuple(str(item) for item in code) if isinstance(code, list) else (),
        rule=rule if isinstance(rule, str) else None,
        intent=Intent.model_validate(incident.declared),
    )


@dataclass
class Answering(Continuing):
    """The session of a round whose answer was handed in."""

    given: Given = field(kw_only=True)

    def _handed_in(self, evidence: Evidence) -> Proposal:
        """The answer, where it meets the contract.

        Raises:
            ContractNotMetError: It does not. The round is recorded and closed.
        """
        assert isinstance(self.advisor, Pasting), "answer_incident makes it so"
        name, options = self.given.name, self.options
        opening = told(
            evidence,
            self.facts,
            self.advisor.telling,
            options.folder,
            options.incidents,
            measured_here=False,  # files are shown only where the run's own sources lie as they were
            can_rerun=False,
            looks=False,
        )
        # What `weaklink prompt` shows now; what whoever answered really had before them, nothing here can know.
        asked = Asked(advisor=name, attempt=1, brief=opening.brief, model=self.given.said_by)
        self.writer.append("advisor.asked", asked)
        read = read_answer(self.given.text, evidence)
        proposal = read if isinstance(read, Proposal) else None
        broken = _judged(read, evidence, opening)
        self.writer.append(
            "advisor.answered",
            Answered(advisor=name, attempt=1, proposal=proposal, violations=broken, text=self.given.text),
        )
        if proposal is None or broken:
            self._refuse(broken)
        assert proposal is not None
        return proposal

    def _refuse(self, broken: list[str]) -> None:
        rules = ", ".join(dict.fromkeys(sentence.partition(":")[0] for sentence in broken))
        problem = f"the answer does not meet the contract: {rules}"
        failed = AdvisorFailed(advisor=self.given.name, kind="contract_not_met", problem=problem)
        self.writer.append("advisor.failed", failed)
        self._close(IncidentStatus(), ContractNotMetError.exit_code, problem)
        raise ContractNotMetError(self.given.name, self.folder, broken)


def _judged(read: Proposal | list[str], evidence: Evidence, opening: Told) -> list[str]:
    """The sentences that go back, verbatim."""
    if isinstance(read, Proposal):
        return [str(violation) for violation in violations(read, evidence, _shown(read.sources, opening))]
    return [f"answer: {sentence}" for sentence in read]


def _shown(sources: Sequence[SourceCitation], opening: Told) -> Shown:
    """What a cited line is held against: what the prompt showed, and the cited lines as they stand in the project.

    Somebody with the project open reads more of it than a prompt shows; a line that is not there stays a violation.
    """
    if opening.library is not None:
        for source in sources[:MOST_CITED]:
            opening.library.look(ReadLines(file=source.file, first=source.line, last=source.line))
    return opening.shown
