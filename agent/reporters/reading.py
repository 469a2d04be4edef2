"""What an incident says once its parts are read together: lead mechanism, standing divergence, status."""

from __future__ import annotations

import math
from typing import NamedTuple

from weaklink.agent.proposal import ExperimentChoice, Mechanism, Proposal
from weaklink.agent.record.recoveries import RecoveryFinished
from weaklink.agent.reporters.text import value_text
from weaklink.agent.reporters.view import IncidentView, RoundView
from weaklink.agent.verdict import IncidentStatus, MechanismOutcome, MechanismStatus, PredictionOutcome
from weaklink.collector.evidence import DIVERGING, Row, Site

WHAT_LIMIT = 3


class Counts(NamedTuple):
    """How one mechanism's predictions ended."""

    held: int
    failed: int
    not_measured: int


def mechanisms(incident: IncidentView) -> list[Mechanism]:
    """The mechanisms of the accepted proposal, the lead first. A healthy verdict has none."""
    proposal = incident.proposal
    if proposal is None or proposal.outcome == "nothing_to_repair":
        return []
    supported = [item for item in proposal.mechanisms if mechanism_status(incident, item) == "supported"]
    if len(supported) != 1:
        return list(proposal.mechanisms)
    return [supported[0], *(item for item in proposal.mechanisms if item is not supported[0])]


def lead_mechanism(incident: IncidentView) -> Mechanism | None:
    """The one mechanism the verdict supports; where it supports none or several, the proposal's first."""
    return next(iter(mechanisms(incident)), None)


def borne_out(incident: IncidentView) -> bool:
    """Whether the verdict supports the lead mechanism, and the observed run shows the row diverge that it is about.

    A dissent may be right about a shorter control; of a run that leaves its row open, it explains nothing.
    """
    lead, proposal, evidence = lead_mechanism(incident), incident.proposal, incident.evidence
    if lead is None or proposal is None or proposal.first_row is None or evidence is None:
        return False
    row = evidence.row(proposal.first_row)
    return row is not None and row.diverges and mechanism_status(incident, lead) == "supported"


def mechanism_outcome(incident: IncidentView, mechanism: Mechanism) -> MechanismOutcome | None:
    """What the verdict says of this mechanism, or None without a verdict."""
    if incident.verdict is None:
        return None
    return next((item for item in incident.verdict.verdict.mechanisms if item.id == mechanism.id), None)


def mechanism_status(incident: IncidentView, mechanism: Mechanism) -> MechanismStatus:
    """The verdict's status of this mechanism; `not_tested` where no verdict names it."""
    outcome = mechanism_outcome(incident, mechanism)
    return "not_tested" if outcome is None else outcome.status


def effective_divergence(incident: IncidentView) -> Row | None:
    """The first divergence as it stands after the verdict.

    A suspected row is settled by its experiment: with the lead mechanism supported, and the treated run learning
    better for it, it is a controlled fail; with the lead mechanism refuted it is withdrawn. Where the treated rerun
    still shows the row, the explanation is refuted and the suspicion is not: it stays. So it does where what was
    changed may have been meant, which no rerun can tell: then the proposal asks the operator, or the run learns no
    better. An exact or declared fail needs no experiment and always stands.
    """
    row = incident.evidence.first_divergence if incident.evidence else None
    if row is None or row.status != "suspected":
        return row
    # A later round that decides nothing takes nothing back of what an earlier one confirmed.
    rounds: list[RoundView | IncidentView] = [*incident.earlier, incident]
    if any(_confirms(round_, row) for round_ in rounds):
        return row.model_copy(update={"status": "fail", "basis": "controlled"})
    if _settled_by(incident) == "refuted":
        return row if _still_shown(incident, row) else None
    return row


def _confirms(round_: RoundView | IncidentView, row: Row) -> bool:
    """Whether a mechanism of this row was supported that rightly predicted a better run, and nothing is left to ask.

    A dissent tests an earlier boundary: its outcome says nothing about the row that was suspected. What the playbook
    would ask of this row is left to ask whoever answered: a model that forgets the question has not settled it.
    """
    proposal, verdict = round_.proposal, round_.verdict
    if proposal is None or verdict is None or proposal.question or proposal.dissent or proposal.first_row != row.id:
        return False
    if round_.beside is not None and round_.beside.first_row == row.id and round_.beside.question:
        return False
    supported = [item.id for item in verdict.verdict.mechanisms if item.status == "supported"]
    judged = [item for item in verdict.verdict.predictions if item.mechanism in supported]
    return any(_better(item) for item in judged if item.measurement.startswith("loss."))


def _better(item: PredictionOutcome) -> bool:
    before, after = item.control, item.treatment
    if isinstance(before, float) and isinstance(after, float) and not math.isfinite(before) and math.isfinite(after):
        return item.status == "held"
    return item.status == "held" and (item.expect == "down" or item.expected_value == "falls")


def _still_shown(incident: IncidentView, row: Row) -> bool:
    """Whether the treated rerun diverges at that row as the control does."""
    judged = incident.verdict.verdict.predictions if incident.verdict is not None else []
    return any(item.measurement == f"row[{row.id}]" and item.treatment in DIVERGING for item in judged)


def withdrawn_row(incident: IncidentView) -> Row | None:
    """The suspected row that the experiment did not confirm."""
    row = incident.evidence.first_divergence if incident.evidence else None
    return row if row is not None and effective_divergence(incident) is None else None


def experiment_text(proposal: Proposal) -> str:
    """`scale_lr(factor=0.1)`, or an empty text without an experiment."""
    return "" if proposal.experiment is None else choice_text(proposal.experiment)


def choice_text(choice: ExperimentChoice) -> str:
    """An entry of the catalogue with its parameters: `scale_lr(factor=0.1)`."""
    inside = ", ".join(f"{name}={value_text(value)}" for name, value in choice.parameters.items())
    return f"{choice.name}({inside})"


def sites(incident: IncidentView) -> list[Site]:
    """Where the first divergence points, most likely first, each place once with everything said about it."""
    row = effective_divergence(incident)
    said: dict[tuple[str, int | None], list[str]] = {}
    for site in row.where if row else []:
        notes = said.setdefault((site.file, site.line), [])
        if site.what not in notes:
            notes.append(site.what)
    return [Site(file=file, line=line, what=_joined(notes)) for (file, line), notes in said.items()]


def status_of(incident: IncidentView) -> IncidentStatus:
    """Cause, action and recovery: as closed, else as judged, else nothing known."""
    closed = incident.closed.status if incident.closed is not None else None
    judged = incident.verdict.status if incident.verdict is not None else None
    # A record closed before its reruns (`--no-rerun`) is older than its verdict; only a recovery comes after both.
    if closed is not None and (judged is None or closed.recovery != "not attempted"):
        return closed
    return judged or IncidentStatus()


def recovery_of(incident: IncidentView) -> RecoveryFinished | None:
    """The last repair that was held against the incident's baseline; None where there was none."""
    found: RecoveryFinished | None = getattr(incident, "recovery", None)
    return found


def advisor_of(incident: IncidentView) -> str:
    """Who gave the accepted answer; without one, who was asked."""
    for answer in reversed(incident.answered):
        if not answer.violations:
            return answer.advisor
    return incident.opened.advisor


def outcomes(incident: IncidentView, mechanism: Mechanism) -> list[PredictionOutcome]:
    """This mechanism's predictions with their outcomes; before a rerun every one of them is not measured."""
    if incident.verdict is not None:
        judged = [item for item in incident.verdict.verdict.predictions if item.mechanism == mechanism.id]
        if judged:
            return judged
    return [
        PredictionOutcome(
            mechanism=mechanism.id,
            measurement=item.measurement,
            expect=item.expect,
            expected_value=item.value,
            status="not_measured",
            reason="no rerun has tested it",
        )
        for item in mechanism.predictions
    ]


def counts(incident: IncidentView, mechanism: Mechanism | None) -> Counts:
    """How many of this mechanism's predictions held, failed and were not measured."""
    found = [item.status for item in outcomes(incident, mechanism)] if mechanism else []
    return Counts(found.count("held"), found.count("failed"), found.count("not_measured"))


def digest_facts(incident: IncidentView) -> list[tuple[str, str | None]]:
    """Every digest the incident carries, by name."""
    frozen, observed = incident.frozen, incident.observed
    return [
        ("claim", frozen.claim_sha256 if frozen else None),
        ("context", frozen.context_sha256 if frozen else None),
        ("evidence", observed.evidence_sha256 if observed else None),
        ("output", observed.output_sha256 if observed else None),
        ("head", incident.head),
    ]


def _settled_by(incident: IncidentView) -> MechanismStatus:
    lead, proposal = lead_mechanism(incident), incident.proposal
    dissents = proposal is not None and proposal.dissent is not None
    return "not_tested" if lead is None or dissents else mechanism_status(incident, lead)


def _joined(notes: list[str]) -> str:
    more = len(notes) - WHAT_LIMIT
    return "; ".join([*notes[:WHAT_LIMIT], f"{more} more"] if more > 0 else notes)
