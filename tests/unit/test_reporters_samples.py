"""Incidents to render: built here by hand, so that no reporter test needs torch, a record or a rerun."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from weaklink.agent.conversation.looks import Looked
from weaklink.agent.conversation.messages import Message, Reply, Usage
from weaklink.agent.proposal import Citation, ExperimentChoice, Mechanism, Prediction, Proposal, Repair
from weaklink.agent.record.bodies import (
    AdvisorFailed,
    Amended,
    Answered,
    Asked,
    Closed,
    Exchanged,
    Frozen,
    LookedAt,
    Observed,
    Opened,
    OperatorFact,
    RerunFinished,
    VerdictReached,
)
from weaklink.agent.record.incident import Round
from weaklink.agent.verdict import IncidentStatus, MechanismOutcome, PredictionOutcome, StayOutcome, Verdict
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Outcome,
    RaisedException,
    Row,
    Series,
    Site,
    Subject,
    mark_downstream,
)

GOLDEN = Path(__file__).parent / "golden"
SUBJECT = Subject(kind="script", name="train.py")
MOVED, OWNED, LOSS = "moved[head.*]", "row[OWNERSHIP/owned]", "loss[50]"
DIGEST = "5e1f" * 16
HOSTILE = "</evidence><script>alert(1)</script>[red]\x1b[31m\n| `x` |\u202eabc\x07"


@dataclass
class Sample:
    folder: Path
    opened: Opened
    observed: Observed | None = None
    asked: list[Asked] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    exchanged: list[Exchanged] = field(default_factory=list)
    looked: list[LookedAt] = field(default_factory=list)
    beside: Proposal | None = None
    failed: AdvisorFailed | None = None
    frozen: Frozen | None = None
    reruns: list[RerunFinished] = field(default_factory=list)
    verdict: VerdictReached | None = None
    amendments: list[Amended] = field(default_factory=list)
    facts: list[OperatorFact] = field(default_factory=list)
    earlier: list[Round] = field(default_factory=list)
    closed: Closed | None = None
    head: str = "9" * 64

    @property
    def evidence(self) -> Evidence | None:
        return self.observed.evidence if self.observed else None

    @property
    def proposal(self) -> Proposal | None:
        accepted = [answer.proposal for answer in self.answered if not answer.violations]
        return accepted[-1] if accepted else None


def missing(row: str, reason: str) -> Row:
    return Row(id=row, status="not_measured", text="", reason=reason)


def rows(**changed: Row | None) -> list[Row]:
    """The rows of a healthy run, with some replaced by row name (`UPDATE_moved=...`)."""
    probe = "needs a probe, and --no-probe was given"
    healthy = [
        Row(id="TASK/meaning", status="evidence", text='not declared (say it with --task "...")'),
        Row(id="TASK/rows", status="pass", text="2048 inputs, 2048 targets"),
        Row(id="TASK/classes", status="evidence", text="2 classes; the majority class is 50.6 % of the targets"),
        missing("TASK/known_rule", "no rule declared (--rule)"),
        Row(id="OBJECTIVE/shape", status="pass", text="outputs 2048 x 2, targets 2048"),
        Row(id="OBJECTIVE/value", status="evidence", text="loss 0.6836 at the first backward call"),
        Row(id="DEPENDENCY/reached", status="pass", text="2/2 expected parameters are reached from the loss"),
        Row(id="GRADIENT/present", status="pass", text="2/2 expected parameters received a gradient"),
        Row(id="GRADIENT/norm", status="evidence", text="total norm 1.948e-01 at the first step"),
        Row(id="OWNERSHIP/owned", status="pass", text="2/2 expected parameters are in an optimizer"),
        Row(id="OWNERSHIP/stale", status="pass", text="every parameter in an optimizer belongs to the model"),
        Row(id="UPDATE/moved", status="pass", text="2/2 expected parameters moved"),
        Row(id="UPDATE/rate", status="evidence", text="learning rate 0.01 at all 301 steps"),
        missing("CAPABILITY/tiny_batch", probe),
        missing("EVALUATION/mode_gap", probe),
    ]
    named = {row.id: row for row in healthy}
    for name, row in changed.items():
        named[name.replace("_", "/", 1)] = row
    return mark_downstream([row for row in named.values() if row is not None])


def evidence(chain: list[Row], branch: str = "flat", losses: list[float] | None = None, **changed: object) -> Evidence:
    values = losses if losses is not None else [0.683606] * 301
    fields = {
        "subject": SUBJECT,
        "outcome": Outcome(ended="completed", backwards=301, steps_asked=301, steps=301, forwards=315, seconds=1.24),
        "environment": Environment(torch="2.13.0+cpu", python="3.11.9", platform="Linux-x86_64", threads=2),
        "branch": branch,
        "rows": chain,
        "losses": Series(index=list(range(1, len(values) + 1)), value=values),
    }
    return Evidence(**{**fields, **changed})


def opened(**changed: object) -> Opened:
    fields = {
        "id": "20261130-stale-head",
        "created": "2026-11-30T12:00:00Z",
        "weaklink": "0.1.0",
        "subject": SUBJECT,
        "source": "script",
        "folder": "/home/user/project",
        "python": "/usr/bin/python3",
        "advisor": "playbook",
    }
    return Opened(**{**fields, **changed})


def stale_rows() -> list[Row]:
    built = Site(file="train.py", line=48, what="the optimizer was built here")
    weight = Site(file="train.py", line=52, what="head.weight was created here, after the optimizer")
    bias = Site(file="train.py", line=52, what="head.bias was created here, after the optimizer")
    return rows(
        OWNERSHIP_owned=Row(
            id="OWNERSHIP/owned",
            status="fail",
            basis="exact",
            text="0/2 expected parameters are in an optimizer",
            values={"expected": 2, "owned": 0, "missing": ["head.weight", "head.bias"]},
            where=[weight, bias, built],
            step=1,
        ),
        OWNERSHIP_stale=Row(
            id="OWNERSHIP/stale",
            status="fail",
            basis="exact",
            text="2 parameters in the optimizer belong to no model",
            where=[built],
        ),
        UPDATE_moved=Row(id="UPDATE/moved", status="fail", basis="exact", text="0/2 expected parameters moved"),
    )


def stale_proposal() -> Proposal:
    return Proposal(
        outcome="experiment",
        first_boundary="OWNERSHIP",
        first_row="OWNERSHIP/owned",
        cited=[Citation(row="OWNERSHIP/owned", field="owned", value=0)],
        mechanisms=[
            Mechanism(
                id="optimizer_holds_old_objects",
                boundary="OWNERSHIP",
                explanation="The optimizer was built before head was replaced. It steps the two parameters of the old "
                "head, which the model no longer has; the new ones receive gradients and are never moved.",
                predictions=predicted("becomes", "different", "down", owned="pass"),
            ),
            Mechanism(
                id="rate_wrong",
                boundary="UPDATE",
                explanation="The learning rate is too small for any movement to show.",
                predictions=predicted("same", "same", "same"),
            ),
            Mechanism(
                id="frozen_by_accident",
                boundary="DEPENDENCY",
                explanation="The head was frozen together with the features.",
                predictions=predicted("becomes", "same", "same", owned="pass"),
            ),
        ],
        experiment=ExperimentChoice(name="own_missing_parameters", parameters={"group": 0}),
        must_change=[OWNED, MOVED, LOSS],
        must_stay_unchanged=["loss[1]", "gradient_digest[*]"],
        repair=Repair(kind="wiring", text="Build the optimizer after model.head is replaced."),
    )


def predicted(first: str, second: str, third: str, owned: str | None = None) -> list[Prediction]:
    return [
        Prediction(measurement=OWNED, expect=first, value=owned),
        Prediction(measurement=MOVED, expect=second),
        Prediction(measurement=LOSS, expect=third),
    ]


def outcomes() -> list[PredictionOutcome]:
    measured = {
        OWNED: ("fail", "pass", None),
        MOVED: (["no", "no"], ["yes", "yes"], None),
        LOSS: (0.683606, 0.409912, 1.2e-07),
    }
    found = []
    for mechanism in stale_proposal().mechanisms:
        for item in mechanism.predictions:
            control, treatment, floor = measured[item.measurement]
            found.append(
                PredictionOutcome(
                    mechanism=mechanism.id,
                    measurement=item.measurement,
                    expect=item.expect,
                    expected_value=item.value,
                    control=control,
                    treatment=treatment,
                    floor=floor,
                    status="failed" if item.expect == "same" else "held",
                )
            )
    return found


def stale_verdict() -> VerdictReached:
    verdict = Verdict(
        controls_agree=True,
        observed_prefix_agrees=True,
        applied=True,
        predictions=outcomes(),
        stays=[
            StayOutcome(measurement="loss[1]", control=0.683606, treatment=0.683606, equal=True),
            StayOutcome(measurement="gradient_digest[*]", control=DIGEST, treatment=DIGEST, equal=True),
        ],
        mechanisms=[
            MechanismOutcome(
                id="optimizer_holds_old_objects",
                status="supported",
                reason="OWNERSHIP/owned flips from fail to pass, the stay-list is equal, the rivals fail.",
            ),
            MechanismOutcome(id="rate_wrong", status="refuted", reason="it predicted no movement, and both moved."),
            MechanismOutcome(id="frozen_by_accident", status="refuted", reason="it predicted no movement."),
        ],
        text="One mechanism is supported: optimizer_holds_old_objects.",
    )
    return VerdictReached(verdict=verdict, status=IncidentStatus(cause="supported", action="proposed"))


def falling(last: float = 0.409912, steps: int = 51) -> list[float]:
    return [0.683606 - (0.683606 - last) * math.sqrt(step / (steps - 1)) for step in range(steps)]


def rerun(role: str, losses: list[float], **changed: object) -> RerunFinished:
    stopped = Outcome(ended="stopped", backwards=51, steps_asked=51, steps=51, seconds=0.3)
    found = evidence(rows(), losses=losses, outcome=stopped)
    return RerunFinished(**{"role": role, "evidence": found, "seconds": 0.31, **changed})


def observed(found: Evidence) -> Observed:
    return Observed(evidence=found, evidence_sha256="e" * 64, output_sha256="0" * 64, output_bytes=420)


def frozen() -> Frozen:
    return Frozen(claim_sha256="c1a1" * 16, context_sha256="c0" * 32, claim={}, context={})


def answered(proposal: Proposal, advisor: str = "playbook", violations: tuple[str, ...] = ()) -> Answered:
    return Answered(advisor=advisor, attempt=1, proposal=proposal, violations=list(violations))


def stale_head() -> Sample:
    """The whole story: two rows fail, the experiment supports one mechanism of three."""
    return Sample(
        folder=Path("incidents/20261130-120000-train-1a2b"),
        opened=opened(),
        observed=observed(evidence(stale_rows())),
        asked=[Asked(advisor="playbook", attempt=1, brief="# Evidence\n\nOWNERSHIP/owned fails: 0/2\n")],
        answered=[answered(stale_proposal())],
        frozen=frozen(),
        reruns=[
            rerun("control", [0.683606] * 51),
            rerun("control_again", [0.683606] * 51),
            rerun("placebo", [0.6836061] * 51),
            rerun("treatment", falling()),
        ],
        verdict=stale_verdict(),
        closed=Closed(status=stale_verdict().status, exit_code=1),
    )


def healthy() -> Sample:
    """No row fails, and the accepted answer says so."""
    proposal = Proposal(outcome="nothing_to_repair", first_boundary="NONE")
    return Sample(
        folder=Path("incidents/healthy"),
        opened=opened(id="healthy"),
        observed=observed(evidence(rows(), branch="learning", losses=falling(0.0421, 301))),
        answered=[answered(proposal)],
        closed=Closed(status=IncidentStatus(), exit_code=0),
    )


def suspected() -> Sample:
    """A suspected row, and a question instead of an experiment."""
    row = Row(
        id="TASK/pairing",
        status="suspected",
        text="targets follow no pattern of their inputs: 0.5000 agreement of neighbours",
        where=[Site(file="data/labels.csv", line=None, what="the run read its targets here")],
    )
    proposal = Proposal(
        outcome="ask_operator",
        first_boundary="TASK",
        first_row="TASK/pairing",
        mechanisms=[
            Mechanism(id="pairing_broken", boundary="TASK", explanation="Inputs were reordered, targets were not.")
        ],
        question="Which rule ties a line of labels.csv to its input?",
    )
    return Sample(
        folder=Path("incidents/suspected"),
        opened=opened(id="suspected", advisor="openai"),
        observed=observed(evidence(rows(TASK_pairing=row), branch="slow")),
        answered=[answered(proposal, advisor="openai")],
        closed=Closed(status=IncidentStatus(cause="suspected"), exit_code=1),
    )


def raised() -> Sample:
    """The script raised before its first step; no answer met the contract."""
    where = Site(file="train.py", line=31, what="raised here")
    outcome = Outcome(
        ended="raised",
        backwards=0,
        seconds=0.2,
        raised=RaisedException(
            type="RuntimeError", message="mat1 and mat2 shapes cannot be multiplied (8x3 and 2x32)", where=where
        ),
    )
    chain = [row for row in rows() if row.boundary == "TASK"]
    refused = answered(stale_proposal(), "openai", ("cited row OWNERSHIP/owned does not exist",))
    return Sample(
        folder=Path("incidents/raised"),
        opened=opened(id="raised", advisor="openai"),
        observed=observed(evidence(chain, branch="raised", losses=[], outcome=outcome)),
        answered=[refused],
        closed=Closed(status=IncidentStatus(), exit_code=3, problem="no answer met the contract after 1 attempt"),
    )


def exchange(turn: int, text: str, **usage: object) -> Exchanged:
    reply = Reply(
        text=text,
        model="small-model",
        endpoint="127.0.0.1:8080",
        rung="json_schema",
        finish="stop",
        usage=Usage.model_validate(usage),
        seconds=1.5,
    )
    sent = [Message(role="user", content="OWNERSHIP/owned: fail")]
    return Exchanged(advisor="openai", attempt=turn, turn=turn, sent=sent, sent_sha256="0" * 64, reply=reply)


def asked_model(spoken: str | None = None) -> Asked:
    return Asked(
        advisor="openai", attempt=1, brief="the brief", model="small-model", endpoint="127.0.0.1:8080", spoken=spoken
    )


def model_answered() -> Sample:
    """A model looked at a file, was refused once, then answered as the playbook does, with another experiment."""
    other = stale_proposal().model_copy(update={"experiment": ExperimentChoice(name="seed", parameters={"k": 1})})
    refused = Answered(
        advisor="openai", attempt=1, proposal=None, violations=["answer: there is no JSON object in it."], text="Hm."
    )
    looked = Looked(do="read", request={"file": "train.py"}, ok=True, text="1| import torch", file="train.py")
    return replace(
        stale_head(),
        opened=opened(id="model_answered", advisor="openai"),
        asked=[asked_model()],
        exchanged=[
            exchange(1, '{"turn": {"do": "read", "file": "train.py"}}', prompt_tokens=1400, answer_tokens=20),
            exchange(2, "Hm.", prompt_tokens=1500, answer_tokens=2),
            exchange(3, "{}", prompt_tokens=1600, answer_tokens=300),
        ],
        looked=[LookedAt(advisor="openai", attempt=1, turn=1, look=looked)],
        answered=[refused, answered(other, "openai").model_copy(update={"attempt": 2})],
        beside=stale_proposal(),
    )


def model_failed() -> Sample:
    """The endpoint gave no answer; the playbook's is delivered, under its own name."""
    return replace(
        stale_head(),
        opened=opened(id="model_failed", advisor="openai"),
        asked=[asked_model()],
        beside=stale_proposal(),
        failed=AdvisorFailed(
            advisor="openai",
            kind="endpoint",
            problem="The endpoint refused the connection.",
            about="small-model at 127.0.0.1:8080",
            hint="start the server, or check --base-url.",
        ),
        closed=Closed(status=stale_verdict().status, exit_code=3, problem="the openai advisor gave no answer"),
    )


def frozen_only() -> Sample:
    """`--no-rerun`: the predictions are frozen, nothing has tested them."""
    status = IncidentStatus(cause="suspected", action="none")
    return replace(stale_head(), reruns=[], verdict=None, closed=Closed(status=status, exit_code=1))


def interrupted() -> Sample:
    """Nothing but the opening."""
    return Sample(folder=Path("incidents/interrupted"), opened=opened(id="interrupted"))


def withdrawn() -> Sample:
    """A suspected row whose mechanism the rerun refuted."""
    row = Row(id="UPDATE/rate", status="suspected", text="the largest delta is 4.1 times the parameter norm")
    story = stale_head()
    proposal = stale_proposal().model_copy(
        update={"first_boundary": "UPDATE", "first_row": "UPDATE/rate", "mechanisms": stale_proposal().mechanisms[1:]}
    )
    verdict = stale_verdict().verdict.model_copy(update={"mechanisms": stale_verdict().verdict.mechanisms[1:]})
    return replace(
        story,
        observed=observed(evidence(rows(UPDATE_rate=row))),
        answered=[answered(proposal)],
        verdict=VerdictReached(verdict=verdict, status=IncidentStatus(cause="refuted")),
        closed=Closed(status=IncidentStatus(cause="refuted"), exit_code=0),
    )


def confirmed() -> Sample:
    """A suspected row whose mechanism the rerun supported, and without which the loss fell."""
    story = withdrawn()
    outcome = MechanismOutcome(id="rate_wrong", status="supported", reason="the row flips.")
    better = PredictionOutcome(
        mechanism="rate_wrong", measurement="loss.last", expect="down", control=0.9, treatment=0.2, status="held"
    )
    judged = stale_verdict().verdict
    verdict = judged.model_copy(update={"mechanisms": [outcome], "predictions": [*judged.predictions, better]})
    status = IncidentStatus(cause="supported")
    return replace(
        story, verdict=VerdictReached(verdict=verdict, status=status), closed=Closed(status=status, exit_code=1)
    )


def cut_short() -> Sample:
    """Interrupted while observing: some rows, no advisor, and problems of weaklink's own."""
    outcome = Outcome(
        ended="interrupted", backwards=12, steps_asked=12, steps=12, seconds=3.21, note="interrupted by the user"
    )
    chain = [row for row in rows() if row.boundary in ("TASK", "OBJECTIVE", "GRADIENT")]
    found = evidence(
        chain,
        branch="not_measured",
        losses=[0.69, 0.68],
        outcome=outcome,
        problems=["reading the norm: RuntimeError: x", "rows of UPDATE: KeyError: 3"],
    )
    return Sample(
        folder=Path("incidents/cut"),
        opened=opened(id="cut"),
        observed=observed(found),
        closed=Closed(status=IncidentStatus(), exit_code=130, problem="interrupted while observing"),
    )


def unjudged() -> Sample:
    """The experiment found nothing to change: no prediction was measured, and one reason holds for all."""
    reason = "the experiment found nothing to change in the rerun"
    lost = [
        item.model_copy(update={"status": "not_measured", "reason": reason, "control": None, "treatment": None})
        for item in outcomes()
    ]
    verdict = Verdict(
        controls_agree=False,
        observed_prefix_agrees=None,
        applied=False,
        predictions=lost,
        mechanisms=[
            MechanismOutcome(id=item.id, status="not_applicable", reason=reason) for item in stale_proposal().mechanisms
        ],
        text=f"No verdict: {reason}.",
    )
    status = IncidentStatus(cause="suspected")
    return replace(
        stale_head(),
        verdict=VerdictReached(verdict=verdict, status=status),
        closed=Closed(status=status, exit_code=1),
    )


def hostile() -> Sample:
    """The stale head, with hostile text wherever a user's script, files or advisor can put text."""
    bad_site = Site(file=HOSTILE, line=3, what=HOSTILE)
    chain = stale_rows()
    for row in chain:
        if row.id == "OWNERSHIP/owned":
            row.text, row.where = f"missing: {HOSTILE}", [bad_site]
        if row.status == "not_measured":
            row.reason = HOSTILE
    outcome = Outcome(
        ended="raised", raised=RaisedException(type=HOSTILE, message=HOSTILE, where=bad_site), note=HOSTILE, seconds=1.0
    )
    found = evidence(
        chain,
        outcome=outcome,
        subject=Subject(kind="script", name="train.py", argv=["--name", HOSTILE]),
        environment=Environment(torch=HOSTILE, python="3", platform="x", pins={HOSTILE: HOSTILE}),
        problems=[HOSTILE],
    )
    proposal = stale_proposal()
    for mechanism in proposal.mechanisms:
        mechanism.explanation = HOSTILE
    proposal.experiment = ExperimentChoice(name="own_missing_parameters", parameters={"pattern": HOSTILE})
    proposal.must_change, proposal.must_stay_unchanged = [HOSTILE], [f"moved[{HOSTILE}]"]
    proposal.question, proposal.dissent = HOSTILE, HOSTILE
    proposal.repair = Repair(kind="wiring", text=HOSTILE)
    reached = stale_verdict()
    for item in reached.verdict.predictions:
        item.measurement, item.control, item.treatment, item.reason = HOSTILE, HOSTILE, [HOSTILE], HOSTILE
    for stay in reached.verdict.stays:
        stay.measurement, stay.equal = HOSTILE, False
    for judged in reached.verdict.mechanisms:
        judged.reason = HOSTILE
    reached.verdict.text, reached.verdict.nondeterminism = HOSTILE, [HOSTILE]
    story = stale_head()
    return replace(
        story,
        opened=opened(id=HOSTILE, subject=found.subject),
        observed=observed(found),
        asked=[Asked(advisor=HOSTILE, attempt=1, brief=HOSTILE)],
        answered=[
            answered(stale_proposal(), HOSTILE, (HOSTILE,)),
            answered(proposal, HOSTILE),
        ],
        exchanged=[exchange(1, HOSTILE).model_copy(update={"advisor": HOSTILE})],
        looked=[
            LookedAt(
                advisor=HOSTILE,
                attempt=1,
                turn=1,
                look=Looked(do="read", request={"file": HOSTILE}, ok=False, text=HOSTILE, file=HOSTILE),
            )
        ],
        beside=proposal,
        reruns=[*story.reruns, RerunFinished(role="control", evidence=None, problem=HOSTILE, seconds=0.1)],
        verdict=reached,
        amendments=[Amended(of=3, text=HOSTILE)],
        closed=Closed(status=reached.status, exit_code=1, problem=HOSTILE),
    )


EVERY = {
    maker.__name__: maker
    for maker in (
        stale_head,
        healthy,
        suspected,
        raised,
        model_answered,
        model_failed,
        frozen_only,
        interrupted,
        cut_short,
        withdrawn,
        confirmed,
        unjudged,
        hostile,
    )
}


def test_samples_differ() -> None:
    assert len({repr(maker()) for maker in EVERY.values()}) == len(EVERY)
