"""What an incident that went on says besides its last round: the operator's facts, and the rounds before."""

from __future__ import annotations

from typing import Any

from weaklink.agent.proposal import Proposal
from weaklink.agent.reporters.blocks import Block, Facts, Heading, Paragraph, Section
from weaklink.agent.reporters.json_report import diagnosis_json, rounds_json
from weaklink.agent.reporters.reading import experiment_text
from weaklink.agent.reporters.speakers import HANDED_IN
from weaklink.agent.reporters.view import IncidentView, RoundView

CONTINUED_SCHEMA = "weaklink.continued/1"
SPEAKERS = {
    "playbook": "the built-in playbook",
    "operator": "the operator's choice of experiment",
    "openai": "a language model",
    "recorded": "a language model, recorded",
    **HANDED_IN,
}


def facts(incident: IncidentView) -> Section | None:
    """What the operator said, word for word, each with the time it was given."""
    if not incident.facts:
        return None
    rows = tuple((f"fact {fact.number}", f"{fact.text} ({fact.given})") for fact in incident.facts)
    return Section("Operator", (Facts(rows),))


def earlier(incident: IncidentView) -> Section | None:
    """The rounds before the last one, the latest first, each with its prediction's hash and what became of it."""
    if not incident.earlier:
        return None
    blocks: list[Block] = [Paragraph("Nothing below was judged again.")]
    for number, before in reversed(list(enumerate(incident.earlier, start=1))):
        blocks += [Heading(f"Round {number}: {_speaker(before)}"), Facts(tuple(_round(before)))]
    return Section("Earlier", tuple(blocks))


def continued_json(incident: IncidentView) -> dict[str, Any]:
    """The one object `weaklink continue --json` prints: the last round's diagnosis, the facts, the rounds before."""
    return {
        "schema": CONTINUED_SCHEMA,
        "round": len(incident.earlier) + 1,
        "diagnosis": diagnosis_json(incident),
        **rounds_json(incident),
        "problem": incident.closed.problem if incident.closed else None,
    }


def _speaker(before: RoundView) -> str:
    name = before.answered[-1].advisor if before.answered else ""
    return SPEAKERS.get(name, f"advisor {name}" if name else "no answer")


def _round(before: RoundView) -> list[tuple[str, str]]:
    proposal, verdict = before.proposal, before.verdict
    rows = []
    if before.continued is not None and before.continued.facts:
        rows.append(("given", f"facts {', '.join(map(str, before.continued.facts))} of the operator"))
    if proposal is not None:
        outcome = proposal.outcome.replace("_", " ")
        rows.append(("answer", f"{_lead(proposal)}{outcome} {experiment_text(proposal)}".strip()))
    if before.frozen is not None:
        rows.append(("claim", before.frozen.claim_sha256))
    if verdict is not None:
        held = [item.status for item in verdict.verdict.predictions]
        counted = f" ({held.count('held')} predictions held, {held.count('failed')} failed)"
        rows.append(("verdict", verdict.verdict.text + (counted if set(held) - {"not_measured"} else "")))
    elif before.frozen is not None:
        rows.append(("verdict", "none: no rerun tested it"))
    if before.closed is not None and before.closed.problem:
        rows.append(("ended", before.closed.problem))
    return rows or [("answer", "none")]


def _lead(proposal: Proposal) -> str:
    return f"{proposal.mechanisms[0].id}, " if proposal.mechanisms else ""
