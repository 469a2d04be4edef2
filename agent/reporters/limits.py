"""What an incident does not prove. Printed with every export."""

from __future__ import annotations

from weaklink.agent.reporters.chain import not_measured
from weaklink.agent.reporters.reading import effective_divergence, recovery_of, status_of
from weaklink.agent.reporters.text import plural
from weaklink.agent.reporters.view import IncidentView

ALWAYS = (
    "Objective: that the loss is the goal you meant, beyond the rows measured here.",
    "Checkpoint: that weights saved before a repair are sound.",
    "Recurrence: that the fault stays away on other data, seeds, devices or longer runs.",
    "Record: that nobody rewrote it whole. It shows edits only against a head or a claim hash that somebody kept.",
)


def limits(incident: IncidentView) -> list[str]:
    """What this incident leaves open, one sentence each."""
    return [*_evidence(incident), *_rerun(incident), *_repair(incident), *ALWAYS]


def _evidence(incident: IncidentView) -> list[str]:
    if incident.evidence is None:
        return ["Anything about the run: nothing was observed."]
    found = []
    missing = not_measured(incident.evidence)
    if missing:
        found.append(f"Unmeasured: anything about the {plural(missing, 'row')} not measured, neither pass nor fail.")
    if effective_divergence(incident) is None:
        found.append("Health: that the run is sound. No row fails, and only measured rows can.")
    return found


def _rerun(incident: IncidentView) -> list[str]:
    if incident.verdict is None:
        return ["Cause: no rerun was judged, so every mechanism named here is a hypothesis."]
    return ["Cause: that no other cause is present. The rerun decided between the mechanisms named here, no others."]


def _repair(incident: IncidentView) -> list[str]:
    found = recovery_of(incident)
    if found is not None:
        return [text for text in found.limits if text.partition(":")[0] not in {of.partition(":")[0] for of in ALWAYS}]
    if status_of(incident).recovery != "not attempted":
        return []
    return ["Repair: that a repaired script learns. A treated rerun tests a cause; it is not the repaired script."]
