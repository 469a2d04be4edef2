"""The JSON objects weaklink prints and exports. Schemas are fixed: a key is added only with a new schema version."""

from __future__ import annotations

import json
from typing import Any

from weaklink.agent.proposal import Mechanism
from weaklink.agent.record.bodies import RerunFinished
from weaklink.agent.reporters.limits import limits
from weaklink.agent.reporters.reading import (
    advisor_of,
    counts,
    digest_facts,
    effective_divergence,
    lead_mechanism,
    mechanism_status,
    mechanisms,
    outcomes,
    sites,
    status_of,
)
from weaklink.agent.reporters.speakers import model_json, was_asked
from weaklink.agent.reporters.view import IncidentView, RoundView
from weaklink.collector.errors import WeaklinkError
from weaklink.collector.evidence import Model, in_chain_order

DIAGNOSIS_SCHEMA = "weaklink.diagnosis/1"
ASKED_SCHEMA = "weaklink.diagnosis/2"  # with `model`; where somebody else than fixed rules was asked
RECEIPT_SCHEMA = "weaklink.receipt/1"
CONTINUED_RECEIPT_SCHEMA = "weaklink.receipt/2"  # with the facts and the rounds before; of an incident that went on
ERROR_SCHEMA = "weaklink.error/1"


def diagnosis_json(incident: IncidentView) -> dict[str, Any]:
    """The one object `--json` prints for a diagnosis."""
    asked = was_asked(incident)
    return {
        "schema": ASKED_SCHEMA if asked else DIAGNOSIS_SCHEMA,
        "incident": str(incident.folder),
        "branch": incident.evidence.branch if incident.evidence else "not_measured",
        "first_divergence": _divergence(incident),
        "mechanism": _mechanism(incident, lead_mechanism(incident)),
        "alternatives": [_mechanism(incident, other) for other in mechanisms(incident)[1:]],
        "where": [plain(site) for site in sites(incident)],
        "experiment": _experiment(incident),
        "predictions": _predictions(incident),
        "status": plain(status_of(incident)),
        "advisor": advisor_of(incident),
        **({"model": model_json(incident)} if asked else {}),
    }


def receipt_json(incident: IncidentView) -> dict[str, Any]:
    """The diagnosis with all it rests on: rows, predictions with outcomes, reruns, digests, and what it leaves open."""
    verdict = incident.verdict.verdict if incident.verdict else None
    went_on = bool(incident.facts or incident.earlier)
    return {
        "schema": CONTINUED_RECEIPT_SCHEMA if went_on else RECEIPT_SCHEMA,
        "diagnosis": diagnosis_json(incident),
        "subject": plain(incident.opened.subject),
        "outcome": plain(incident.evidence.outcome) if incident.evidence else None,
        "environment": plain(incident.evidence.environment) if incident.evidence else None,
        "chain": [plain(row) for row in in_chain_order(incident.evidence.rows)] if incident.evidence else [],
        "predictions": [plain(item) for mechanism in mechanisms(incident) for item in outcomes(incident, mechanism)],
        "verdict": plain(verdict, exclude={"predictions"}) if verdict else None,
        "reruns": [_rerun(rerun) for rerun in incident.reruns],
        "amendments": [plain(amendment) for amendment in incident.amendments],
        "digests": dict(digest_facts(incident)),
        "head": incident.head,
        "does_not_prove": limits(incident),
        **(rounds_json(incident) if went_on else {}),
    }


def rounds_json(incident: IncidentView) -> dict[str, Any]:
    """Facts and earlier rounds as plain data."""
    return {
        "facts": [plain(fact) for fact in incident.facts],
        "earlier": [_round_json(number, before) for number, before in enumerate(incident.earlier, start=1)],
    }


def error_json(error: WeaklinkError) -> dict[str, Any]:
    """What `--json` prints where there is nothing else to print."""
    return {
        "schema": ERROR_SCHEMA,
        "error": type(error).__name__,
        "message": error.message,
        "about": error.about,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def plain(model: Model, exclude: set[str] | None = None) -> dict[str, Any]:
    """A model as strict JSON would read it back: NaN and infinity are words."""
    loaded: dict[str, Any] = json.loads(model.model_dump_json(by_alias=True, exclude=exclude))
    return loaded


def _divergence(incident: IncidentView) -> dict[str, Any] | None:
    row = effective_divergence(incident)
    if row is None:
        return None
    return {"row": row.id, "boundary": row.boundary, "status": row.status, "basis": row.basis}


def _mechanism(incident: IncidentView, mechanism: Mechanism | None) -> dict[str, Any] | None:
    if mechanism is None:
        return None
    status = mechanism_status(incident, mechanism)
    return {"id": mechanism.id, "explanation": mechanism.explanation, "status": status}


def _experiment(incident: IncidentView) -> dict[str, Any] | None:
    proposal = incident.proposal
    if proposal is None or proposal.experiment is None:
        return None
    return {
        **plain(proposal.experiment),
        "must_change": list(proposal.must_change),
        "must_stay_unchanged": list(proposal.must_stay_unchanged),
    }


def _predictions(incident: IncidentView) -> dict[str, Any] | None:
    if incident.frozen is None:
        return None
    digests = {"claim": incident.frozen.claim_sha256, "context": incident.frozen.context_sha256}
    return {**digests, **counts(incident, lead_mechanism(incident))._asdict()}


def _rerun(rerun: RerunFinished) -> dict[str, Any]:
    evidence = rerun.evidence
    losses = plain(evidence.losses)["value"] if evidence else []
    return {
        **plain(rerun, exclude={"evidence", "files_written"}),
        "outcome": evidence.outcome.ended if evidence else None,
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
    }


def _round_json(number: int, before: RoundView) -> dict[str, Any]:
    proposal, frozen = before.proposal, before.frozen
    return {
        "round": number,
        "facts": list(before.continued.facts) if before.continued else [],
        "advisor": before.answered[-1].advisor if before.answered else None,
        "outcome": proposal.outcome if proposal else None,
        "mechanisms": [mechanism.id for mechanism in proposal.mechanisms] if proposal else [],
        "experiment": plain(proposal.experiment) if proposal and proposal.experiment else None,
        "predictions": {"claim": frozen.claim_sha256, "context": frozen.context_sha256} if frozen else None,
        "verdict": plain(before.verdict.verdict) if before.verdict else None,
        "status": plain(before.closed.status) if before.closed else None,
        "problem": before.closed.problem if before.closed else None,
    }
