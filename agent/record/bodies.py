"""The body of each kind of event, in the order a diagnosis writes them.

incident.opened      what was asked for
evidence.observed    the evidence of the observed run, whole; once more with what a close-up added
baseline.kept        the files the observed run started from, with their hashes
advisor.asked        what the advisor was shown
advisor.exchanged    one request to a language model, and its reply word for word
advisor.looked       what the model asked to see before it answered, and what it was shown
advisor.answered     what it answered, and the contract's violations (empty: accepted)
playbook.answered    what the built-in playbook says, beside a model's answer
advisor.failed       why no answer came, or none that meets the contract
prediction.frozen    claim and context with their digests, on disk before the first rerun starts
rerun.started        which rerun, under which intervention
rerun.finished       its evidence, or how it died
verdict.reached      predictions against measurements
incident.amended     a labelled correction; nothing is edited
operator.fact        what the operator says of the intended system, word for word
incident.continued   a further round in the same incident: what was asked for this time
recovery.started     what is held against the baseline, on which seeds
recovery.finished    every run of both sides, and what they decide
reference.sealed     what outcomes will be held against, with its digest, on disk before any outcome is compared
reference.compared   one attempt's outcome against it
incident.closed      status and exit code
"""

from __future__ import annotations

from typing import Any, Literal

from weaklink.agent.conversation.looks import Looked
from weaklink.agent.conversation.messages import Message, Reply
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.recoveries import BaselineKept, RecoveryFinished, RecoveryStarted
from weaklink.agent.verdict import IncidentStatus, Verdict
from weaklink.collector.evidence import Evidence, Model, Subject, Value

RERUN_ROLES = Literal["close_up", "control", "control_again", "placebo", "treatment"]


class Opened(Model):
    """`folder` and `python` are this machine's; a claim never holds them. `declared` is an intent's `said`."""

    id: str
    created: str
    weaklink: str
    subject: Subject
    source: Literal["script", "evidence"]
    folder: str
    python: str
    advisor: str
    options: dict[str, Value] = {}
    declared: dict[str, Any] = {}


class Observed(Model):
    evidence: Evidence
    evidence_sha256: str
    output_sha256: str | None = None
    output_bytes: int | None = None


class Asked(Model):
    """`model` and `endpoint` (host and port) are those of a language model; `spoken` is when a recorded one spoke."""

    advisor: str
    attempt: int
    brief: str
    model: str | None = None
    endpoint: str | None = None
    spoken: str | None = None


class Answered(Model):
    """`proposal` is None where the words (`text`, whole) could not be read as one; then `violations` says why."""

    advisor: str
    attempt: int
    proposal: Proposal | None
    violations: list[str] = []
    text: str | None = None


class Exchanged(Model):
    """One request to a language model and its reply.

    `sent` are the messages that earlier exchanges did not send, `sent_sha256` is that of everything in this request:
    the opening, and as many of the last messages as fitted into the model's context.
    """

    advisor: str
    attempt: int
    turn: int
    sent: list[Message]
    sent_sha256: str
    reply: Reply


class LookedAt(Model):
    """What a model asked to see before it answered, and what it was shown."""

    advisor: str
    attempt: int
    turn: int
    look: Looked


class PlaybookAnswered(Model):
    """The built-in playbook's answer, kept beside a model's. It is never taken for the model's."""

    proposal: Proposal


class AdvisorFailed(Model):
    """Why an advisor gave no answer that holds: the endpoint, the contract, a recording that ended."""

    advisor: str
    kind: Literal["endpoint", "contract_not_met", "recording"]
    problem: str
    about: str | None = None
    hint: str | None = None


class Frozen(Model):
    """`claim` and `context` are kept whole: `weaklink check` recomputes both digests from them."""

    claim_sha256: str
    context_sha256: str
    claim: dict[str, Any]
    context: dict[str, Any]


class RerunStarted(Model):
    role: RERUN_ROLES
    intervention: str | None
    parameters: dict[str, Value] = {}
    horizon: int | None


class RerunFinished(Model):
    """`changed_inputs` are files it read that are no longer what the observed run read."""

    role: RERUN_ROLES
    evidence: Evidence | None
    problem: str | None = None
    seconds: float
    output_sha256: str | None = None
    files_written: list[str] = []
    changed_inputs: list[str] = []


class VerdictReached(Model):
    verdict: Verdict
    status: IncidentStatus


class Amended(Model):
    of: int
    text: str


class OperatorFact(Model):
    """What the operator said, and when. `number` counts the facts of an incident from 1; reports name it by that."""

    number: int
    text: str
    given: str


class Continued(Model):
    """A further round. `facts` are the numbers of those given for it; `declared` and `options` are what holds now.

    `experiment` is the operator's own choice from the catalogue, as `NAME(key=value)`; None: the advisor's.
    """

    round: int
    created: str
    weaklink: str
    advisor: str
    facts: list[int] = []
    experiment: str | None = None
    options: dict[str, Value] = {}
    declared: dict[str, Any] = {}


class ReferenceSealed(Model):
    """What an outcome will be held against, fixed before any outcome is there. `outcome_sha256` is that of `outcome`.

    `sources` are the files that computed it, `tolerance` is the largest difference in any number, relative to the
    largest number of its parameter (or loss). `expects` is what the operator expects of each attempt that will be
    compared; `does_not_prove` are the limits of the whole comparison, in words.
    """

    what: str
    sources: dict[str, str]
    outcome: dict[str, Any]
    outcome_sha256: str
    tolerance: float
    expects: dict[str, bool]
    does_not_prove: list[str]


class ReferenceCompared(Model):
    """One attempt's outcome against the sealed reference. `sealed` is the seq of the seal, `claim_sha256` what was
    predicted first in this incident; `checks` are the questions that were put to it, `complete` that all are answered
    with yes."""

    attempt: str
    source_sha256: str
    sealed: int
    claim_sha256: str | None
    outcome_sha256: str
    checks: dict[str, bool]
    worst: float | None
    worst_at: str | None
    complete: bool
    text: str


class Closed(Model):
    status: IncidentStatus
    exit_code: int
    problem: str | None = None


BODIES: dict[str, type[Model]] = {
    "incident.opened": Opened,
    "evidence.observed": Observed,
    "baseline.kept": BaselineKept,
    "advisor.asked": Asked,
    "advisor.exchanged": Exchanged,
    "advisor.looked": LookedAt,
    "advisor.answered": Answered,
    "playbook.answered": PlaybookAnswered,
    "advisor.failed": AdvisorFailed,
    "prediction.frozen": Frozen,
    "rerun.started": RerunStarted,
    "rerun.finished": RerunFinished,
    "verdict.reached": VerdictReached,
    "incident.amended": Amended,
    "operator.fact": OperatorFact,
    "incident.continued": Continued,
    "recovery.started": RecoveryStarted,
    "recovery.finished": RecoveryFinished,
    "reference.sealed": ReferenceSealed,
    "reference.compared": ReferenceCompared,
    "incident.closed": Closed,
}
