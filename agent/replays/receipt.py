"""The receipt of a replay: what one diagnosis found, reduced to what a later one must find again.

Left out is what differs from run to run (seconds, times, ids, the record's head), what belongs to one machine (paths),
and the words around the numbers. Claim and context are kept whole, so that their digests can be recomputed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from weaklink.agent.errors import ReceiptError
from weaklink.agent.record.bodies import Frozen
from weaklink.agent.record.canonical import digest
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.reading import (
    effective_divergence,
    lead_mechanism,
    mechanism_status,
    mechanisms,
    outcomes,
    status_of,
)
from weaklink.agent.reporters.view import IncidentView
from weaklink.agent.subject_files import is_absolute
from weaklink.agent.verdict import IncidentStatus, Verdict
from weaklink.collector.errors import StorageError, UsageError
from weaklink.collector.evidence import Environment, Evidence, Fingerprint, Model, Row, Series, Subject

Kind = TypeVar("Kind", bound=Model)


class Receipt(Model):
    """What is compared. Everything keyed by name, so that a diff of two receipts reads well; NaN is a word."""

    schema_: Literal["weaklink.replay-receipt/1"] = Field(default="weaklink.replay-receipt/1", alias="schema")
    subject: Subject
    environment: Environment
    branch: str
    outcome: dict[str, Any]
    losses: dict[str, Any]
    fingerprint: Fingerprint
    first_divergence: dict[str, Any] | None
    rows: dict[str, dict[str, Any]]
    answer: str | None
    experiment: dict[str, Any] | None
    mechanisms: dict[str, str]
    lead: str | None
    predictions: dict[str, dict[str, dict[str, Any]]]
    stays: dict[str, dict[str, Any]]
    verdict: dict[str, Any] | None
    reruns: dict[str, dict[str, Any]]
    status: IncidentStatus
    frozen: Frozen | None


def receipt_of(incident: IncidentView) -> Receipt:
    """The receipt of an incident that has evidence.

    Raises:
        UsageError: The run reads code outside its folder, whose path is this machine's.
    """
    evidence = incident.evidence
    assert evidence is not None, "an incident without evidence has no receipt"
    _must_stand_alone(evidence)
    judged = incident.verdict.verdict if incident.verdict else None
    proposal, lead, row = incident.proposal, lead_mechanism(incident), effective_divergence(incident)
    choice = proposal.experiment if proposal else None
    return Receipt(
        subject=evidence.subject,
        environment=evidence.environment,
        branch=evidence.branch,
        outcome=_outcome(evidence),
        losses=_losses(evidence.losses),
        fingerprint=evidence.fingerprint,
        first_divergence={"row": row.id, "status": row.status, "basis": row.basis} if row else None,
        rows={row.id: _row(row) for row in evidence.rows},
        answer=proposal.outcome if proposal else None,
        experiment=plain(choice) if choice else None,
        mechanisms={item.id: mechanism_status(incident, item) for item in mechanisms(incident)},
        lead=lead.id if lead else None,
        predictions={
            item.id: {
                found.measurement: plain(found, exclude={"mechanism", "measurement", "reason"})
                for found in outcomes(incident, item)
            }
            for item in mechanisms(incident)
        },
        stays={stay.measurement: plain(stay, exclude={"measurement"}) for stay in (judged.stays if judged else [])},
        verdict=_verdict(judged) if judged else None,
        reruns={rerun.role: _rerun(rerun.evidence) for rerun in incident.reruns},
        status=status_of(incident),
        frozen=incident.frozen,
    )


def read_receipt(path: Path) -> Receipt:
    """Read a stored receipt of one diagnosis, as `read_stored` does."""
    return read_stored(path, Receipt)


def read_stored(path: Path, kind: type[Kind]) -> Kind:
    """Read a stored receipt of that kind.

    Raises:
        UsageError: There is none.
        ReceiptError: It is damaged, or of another schema; names the first bad field.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        hint = f"write one with `weaklink replay {path.parent} --write`, and keep it with the script."
        raise UsageError("This replay has no receipt.", about=str(path), hint=hint) from None
    except OSError as error:
        raise StorageError(
            f"The receipt cannot be read: {error.strerror}.", about=str(path), hint="check its permissions."
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise ReceiptError(
            f"This is no receipt of schema {kind.model_fields['schema_'].default}: {field}: {first['msg']}.",
            about=str(path),
            hint=f"take it back from version control, or write a new one: `weaklink replay {path.parent} --write`.",
        ) from error


def write_receipt(receipt: Model, path: Path) -> None:
    """Write the receipt, indented and with sorted keys.

    Raises:
        StorageError: It cannot be written; a receipt that was there is left as it was.
    """
    text = json.dumps(plain(receipt), indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(text, encoding="ascii")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(
            f"The receipt cannot be written: {error.strerror}.", about=str(path), hint="make the folder writable."
        ) from error


def _must_stand_alone(evidence: Evidence) -> None:
    outside = [source.path for source in evidence.sources if is_absolute(source.path)]
    if outside:
        raise UsageError(
            "The replay runs code from outside its folder, which no other machine has there.",
            about=", ".join(outside[:3]),
            hint="copy what it needs into the replay's folder.",
        )


def _row(row: Row) -> dict[str, Any]:
    body = plain(row)
    kept = {key: body[key] for key in ("status", "basis", "downstream", "step", "values")}
    return kept | {"where": [site.place for site in row.where if not is_absolute(site.file)]}


def _outcome(evidence: Evidence) -> dict[str, Any]:
    outcome = evidence.outcome
    raised = outcome.raised
    where = raised.where if raised is not None else None
    return plain(outcome, exclude={"seconds", "note", "raised"}) | {
        "raised": raised.type if raised is not None else None,
        "raised_at": where.place if where is not None and not is_absolute(where.file) else None,
    }


def _losses(losses: Series) -> dict[str, Any]:
    """How many, the two ends, and a SHA-256 over all of them."""
    values = plain(losses)["value"]
    first, last = (values[0], values[-1]) if values else (None, None)
    return {"points": len(values), "first": first, "last": last, "sha256": digest(losses.value)}


def _verdict(judged: Verdict) -> dict[str, Any]:
    return plain(judged, exclude={"predictions", "stays", "mechanisms", "text"})


def _rerun(evidence: Evidence | None) -> dict[str, Any]:
    if evidence is None:
        return {"ended": None}
    return {"ended": evidence.outcome.ended, "steps": evidence.outcome.steps, **_losses(evidence.losses)}
