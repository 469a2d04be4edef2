"""The frozen prediction: two digests, on disk and on the screen before the first rerun starts.

*claim* is what is asserted: the same on every machine for the same sources. *context* is where it was asserted: this
machine's versions, the batch, the measured values.
"""

from __future__ import annotations

from typing import Any

from weaklink.agent.horizons import Horizon, means
from weaklink.agent.measurements import MEASUREMENTS, matching, measured_keys, parse_key
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import Frozen
from weaklink.agent.record.canonical import digest
from weaklink.agent.subject_files import claimed_name, is_absolute
from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Evidence
from weaklink.collector.job import Pins

CLAIM_SCHEMA = "weaklink.claim/2"
CONTEXT_SCHEMA = "weaklink.context/1"
# A change must exceed the placebo's by this factor (docs/verification.md).
FLOOR_FACTOR = 10


def freeze(
    evidence: Evidence,
    proposal: Proposal,
    plan: list[Horizon],
    pins: Pins,
    rule: str | None = None,
    intent: Intent | None = None,
) -> Frozen:
    """Claim and context of this proposal on this evidence, with their digests.

    Args:
        evidence: The observed run.
        proposal: Accepted by the contract.
        plan: Optimizer steps of every rerun, and of the extension where the first horizon does not decide; None is
            the whole run.
        pins: Seeds fixed from outside.
        rule: What the user declared with `--rule`.
        intent: What else the user declared.
    """
    claim, context = _claim(evidence, proposal, plan, pins), _context(evidence, proposal)
    # Only where something was declared: a claim without declarations has the digest it always had.
    claim |= {} if rule is None else {"rule": rule}
    claim |= {"declared": intent.said} if intent is not None and intent.said else {}
    return Frozen(claim_sha256=digest(claim), context_sha256=digest(context), claim=claim, context=context)


def _claim(evidence: Evidence, proposal: Proposal, plan: list[Horizon], pins: Pins) -> dict[str, Any]:
    body = proposal.model_dump(mode="json")
    # Quoted values are measurements: they belong to the context.
    body["cited"] = [{"row": citation.row, "field": citation.field} for citation in proposal.cited]
    # Lines that were read are grounds for the prediction, no part of it; the files' hashes stand below.
    del body["sources"]
    return {
        "schema": CLAIM_SCHEMA,
        "subject": evidence.subject.model_dump(mode="json") | {"name": claimed_name(evidence)},
        "proposal": body,
        "sources": [s.model_dump(mode="json") for s in evidence.sources if not is_absolute(s.path)],
        "seeds": pins.model_dump(mode="json"),
        "reruns": ["control", "control_again", "placebo", "treatment"],
        "horizons": plan,
        "measurements": _measurements(evidence, proposal),
        "tolerance": {"floor": "placebo and control against control", "factor": FLOOR_FACTOR, "same": "bitwise"},
    }


def _measurements(evidence: Evidence, proposal: Proposal) -> dict[str, Any]:
    """What each predicted measurement is taken of, and over which parameters."""
    found: dict[str, Any] = {}
    for text in measured_keys(proposal):
        key = parse_key(text)
        if key is None:
            continue
        kind = MEASUREMENTS[key.name]
        over = matching(evidence, key.argument or "") if kind.argument == "parameters" else []
        found[text] = {"meaning": kind.meaning, "parameters": sorted({record.name for record in over})}
    return found


def _context(evidence: Evidence, proposal: Proposal) -> dict[str, Any]:
    how = means(evidence, proposal)
    return {
        "schema": CONTEXT_SCHEMA,
        "subject": evidence.subject.name,
        "environment": evidence.environment.model_dump(mode="json"),
        "fingerprint": evidence.fingerprint.model_dump(mode="json"),
        "cited": [citation.model_dump(mode="json") for citation in proposal.cited],
        **({"read": [line.model_dump(mode="json") for line in proposal.sources]} if proposal.sources else {}),
        "means": {"look": how.look, "close_up_from": list(how.starts)},
        "outside_sources": [s.model_dump(mode="json") for s in evidence.sources if is_absolute(s.path)],
    }
