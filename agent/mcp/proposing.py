"""The tool that proposes: an agent's answer becomes a round of the incident, under the same contract as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weaklink.agent.advisors.asking import Telling
from weaklink.agent.advisors.given import LONGEST_LABEL, Given
from weaklink.agent.answering import answer_incident, recorded_options
from weaklink.agent.errors import ContractNotMetError
from weaklink.agent.mcp.reading import waits_for_reruns
from weaklink.agent.progress import Progress
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.reading import experiment_text, status_of

NAME = "mcp"  # the advisor's name in the record


def propose(
    incident: Incident, proposal: dict[str, Any] | str, folder: Path, telling: Telling, agent: str | None
) -> dict[str, Any]:
    """Hold a proposal to the contract; accepted, its prediction is frozen and nothing is rerun yet.

    Args:
        incident: As it was read.
        proposal: The answer, as an object or as the text around one.
        folder: The working folder.
        telling: What the prompt shows.
        agent: The client's own name, kept as a label.

    Raises:
        UsageError: There is nothing to answer here.
    """
    text = proposal if isinstance(proposal, str) else json.dumps(proposal)
    given = Given(NAME, text, agent[:LONGEST_LABEL] if agent and agent.strip() else None)
    options = recorded_options(incident, folder, None, 600.0, rerun=False)
    try:
        finished = answer_incident(incident, given, options, Progress(), telling)
    except ContractNotMetError as error:
        return {
            "accepted": False,
            "violations": list(error.violations),
            "next": "mend what the sentences name and propose again; this attempt is recorded.",
        }
    return _accepted(finished.incident, finished.problem)


def _accepted(incident: Incident, problem: str | None) -> dict[str, Any]:
    answer, frozen = incident.proposal, incident.frozen
    waits = waits_for_reruns(incident)
    return {
        "accepted": True,
        "round": len(incident.rounds),
        "outcome": answer.outcome if answer else None,
        "experiment": experiment_text(answer) or None if answer else None,
        "claim_sha256": frozen.claim_sha256 if frozen else None,
        "context_sha256": frozen.context_sha256 if frozen else None,
        "status": plain(status_of(incident)),
        "problem": problem,
        "next": "`verify` reruns the frozen experiment; a proposal is no verdict."
        if waits
        else "nothing waits to be rerun.",
    }
