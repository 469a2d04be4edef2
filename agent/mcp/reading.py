"""The tools that only read: which incidents there are, one's chain, its record, the catalogue, the measurements."""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path
from typing import Any

from weaklink.agent.advisors.asking import Telling
from weaklink.agent.asked import told
from weaklink.agent.brief import parameter_groups
from weaklink.agent.mcp.shelf import Shelf
from weaklink.agent.measurements import MEASUREMENTS
from weaklink.agent.prompting.prompts import paste_prompt
from weaklink.agent.record.bodies import Amended, Answered, Frozen, RerunFinished, VerdictReached
from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.experiments import experiments_json
from weaklink.agent.reporters.json_report import diagnosis_json, plain
from weaklink.agent.reporters.reading import effective_divergence, sites, status_of
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.errors import UsageError, WeaklinkError
from weaklink.collector.evidence import Model, Row, in_chain_order

MOST_LISTED = 20
MOST_EVENTS = 60


def list_incidents(shelf: Shelf) -> dict[str, Any]:
    """The newest incidents, each in a few words."""
    names = shelf.names()
    shown = [_in_short(shelf, name) for name in names[:MOST_LISTED]]
    return {"folder": str(shelf.root), "incidents": shown, "older_not_shown": len(names) - len(shown)}


def read_chain(incident: Incident, whole: bool) -> dict[str, Any]:
    """Rows, first divergence, sites and parameters of the observed run.

    Args:
        incident: As it was read.
        whole: With the values of rows that pass, too.
    """
    evidence = _observed(incident)
    row = effective_divergence(incident)
    return {
        "incident": incident.folder.name,
        "subject": evidence.subject.command,
        "task": evidence.task,
        "branch": evidence.branch,
        "outcome": plain(evidence.outcome),
        "first_divergence": None if row is None else _row(row, True),
        "sites": [plain(site) for site in sites(incident)],
        "rows": [_row(each, whole or each.status != "pass") for each in in_chain_order(evidence.rows)],
        "parameters": [
            {
                "module": group.prefix,
                "in_model": group.in_model,
                "names": group.names[:8],
                "count": len(group.names),
                "trainable": group.trainable,
                "owned": group.owned,
                "moved": group.moved,
                "gradients": group.gradients,
            }
            for group in parameter_groups(evidence.parameters)
        ],
        "facts": [plain(fact) for fact in incident.facts],
        "status": plain(status_of(incident)),
        "waits_for_reruns": waits_for_reruns(incident),
    }


def read_prompt(incident: Incident, telling: Telling, folder: Path) -> str:
    """What a model would be shown, as one text; after a refused answer with what it broke."""
    opening = told(
        _observed(incident),
        tuple(fact.text for fact in incident.facts),
        telling,
        folder,
        incident.folder.parent,
        measured_here=False,  # files are shown only where the run's own sources lie as they were
        can_rerun=False,
        looks=False,
    )
    refused = incident.answered[-1].violations if incident.answered else []
    return paste_prompt(opening.system, opening.brief, refused)


def read_record(incident: Incident) -> dict[str, Any]:
    """The events in short, whether the record is intact, and its head."""
    found = check_record(incident.folder)
    kinds = Counter(kind for _, kind, _ in incident.events)
    last = incident.events[-MOST_EVENTS:]
    return {
        "incident": incident.folder.name,
        "intact": found.intact,
        "problem": found.problem,
        "head": found.head,
        "frozen": found.frozen,
        "check": found.note,
        "events": dict(kinds),
        "earlier_events_not_shown": len(incident.events) - len(last),
        "last_events": [{"seq": seq, "kind": kind, **_event(body)} for seq, kind, body in last],
        "diagnosis": diagnosis_json(incident),
        "rounds": len(incident.rounds),
    }


def list_experiments(name: str) -> dict[str, Any]:
    """The catalogue, or one entry of it; without a name in short.

    Raises:
        UsageError: There is no experiment of that name.
    """
    if not name:
        return {
            "experiments": [
                {key: entry[key] for key in ("name", "boundary", "changes", "decides", "parameters")}
                for entry in experiments_json(list(CATALOGUE.values()))["experiments"]
            ]
        }
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name[:100], CATALOGUE, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}." if near else "leave the name out for all of them."
        raise UsageError("There is no such experiment.", about=name[:200], hint=hint)
    return experiments_json([CATALOGUE[name]])


def list_measurements() -> dict[str, Any]:
    """What predictions can speak about."""
    return {
        "measurements": [
            {"name": name, "in_brackets": entry.argument, "meaning": entry.meaning}
            for name, entry in MEASUREMENTS.items()
        ]
    }


def waits_for_reruns(incident: Incident) -> bool:
    """Whether a prediction is frozen and was never tested."""
    return incident.frozen is not None and incident.verdict is None


def _observed(incident: Incident) -> Any:
    if incident.evidence is None:
        raise UsageError(
            "Nothing was observed in this incident.", about=incident.folder.name, hint="diagnose again for a new one."
        )
    return incident.evidence


def _in_short(shelf: Shelf, name: str) -> dict[str, Any]:
    try:
        incident = shelf.read(name)
    except WeaklinkError as error:
        return {"incident": name, "problem": error.message}
    row = effective_divergence(incident)
    return {
        "incident": name,
        "subject": incident.opened.subject.command,
        "created": incident.opened.created,
        "branch": incident.evidence.branch if incident.evidence else None,
        "first_divergence": None if row is None else row.id,
        "status": plain(status_of(incident)),
        "rounds": len(incident.rounds),
        "waits_for_reruns": waits_for_reruns(incident),
    }


def _row(row: Row, values: bool) -> dict[str, Any]:
    body = plain(row)
    kept = ("status", "basis", "text") + (("values",) if values else ())
    return {"row": row.id, **{key: body[key] for key in kept if body.get(key) not in (None, {}, [])}}


def _event(body: Model) -> dict[str, Any]:
    """What of an event is worth a line."""
    if isinstance(body, Answered):
        outcome = body.proposal.outcome if body.proposal else None
        return {"advisor": body.advisor, "outcome": outcome, "violations": body.violations}
    if isinstance(body, Frozen):
        return {"claim": body.claim_sha256, "context": body.context_sha256}
    if isinstance(body, RerunFinished):
        return {"role": body.role, "problem": body.problem, "seconds": body.seconds}
    if isinstance(body, VerdictReached):
        return {"verdict": body.verdict.text, "status": plain(body.status)}
    if isinstance(body, Amended):
        return {"of": body.of, "text": body.text}
    return {}
