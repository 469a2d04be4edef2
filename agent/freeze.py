"""The frozen prediction: two digests, on disk and on the screen before the first rerun starts.

*claim* is what is asserted: the same on every machine for the same sources. *context* is where it was asserted: this
machine's versions, the batch, the measured values.
"""

from __future__ import annotations

import posixpath
from typing import Any

from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import Frozen
from weaklink.agent.record.canonical import digest
from weaklink.collector.evidence import Evidence
from weaklink.collector.job import Pins

CLAIM_SCHEMA = "weaklink.claim/1"
CONTEXT_SCHEMA = "weaklink.context/1"
# A change must exceed the placebo's by this factor (docs/verification.md).
FLOOR_FACTOR = 10


def freeze(evidence: Evidence, proposal: Proposal, horizon: int, pins: Pins) -> Frozen:
    """Claim and context of this proposal on this evidence, with their digests.

    Args:
        evidence: The observed run.
        proposal: Accepted by the contract.
        horizon: Optimizer steps of every rerun.
        pins: Seeds fixed from outside.
    """
    claim, context = _claim(evidence, proposal, horizon, pins), _context(evidence, proposal)
    return Frozen(claim_sha256=digest(claim), context_sha256=digest(context), claim=claim, context=context)


def _claim(evidence: Evidence, proposal: Proposal, horizon: int, pins: Pins) -> dict[str, Any]:
    body = proposal.model_dump(mode="json")
    # Quoted values are measurements: they belong to the context.
    body["cited"] = [{"row": citation.row, "field": citation.field} for citation in proposal.cited]
    return {
        "schema": CLAIM_SCHEMA,
        "subject": evidence.subject.model_dump(mode="json") | {"name": claimed_name(evidence)},
        "proposal": body,
        "sources": [s.model_dump(mode="json") for s in evidence.sources if not _absolute(s.path)],
        "seeds": pins.model_dump(mode="json"),
        "reruns": ["control", "control_again", "placebo", "treatment"],
        "horizon": horizon,
        "tolerance": {"floor": "placebo and control against control", "factor": FLOOR_FACTOR, "same": "bitwise"},
    }


def claimed_name(evidence: Evidence) -> str:
    """The script by the path its source has in the run's folder, however it was typed."""
    typed = posixpath.normpath(evidence.subject.name.replace("\\", "/"))
    inside = [source.path for source in evidence.sources if not _absolute(source.path)]
    matching = [path for path in inside if typed == path or typed.endswith("/" + path)]
    return max(matching, key=len, default=typed)


def _context(evidence: Evidence, proposal: Proposal) -> dict[str, Any]:
    return {
        "schema": CONTEXT_SCHEMA,
        "subject": evidence.subject.name,
        "environment": evidence.environment.model_dump(mode="json"),
        "fingerprint": evidence.fingerprint.model_dump(mode="json"),
        "cited": [citation.model_dump(mode="json") for citation in proposal.cited],
        "outside_sources": [s.model_dump(mode="json") for s in evidence.sources if _absolute(s.path)],
    }


def _absolute(path: str) -> bool:
    return path.startswith("/") or path[1:3] in (":\\", ":/")
