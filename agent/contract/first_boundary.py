"""Where the fault begins: the chain's first divergence, a reasoned dissent from it, or nothing to repair at all."""

from __future__ import annotations

from collections.abc import Iterator

from weaklink.agent.contract.families import NONE, order
from weaklink.agent.contract.values import filled, listed, quoted
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import BOUNDARIES, Evidence, Status

# A row of one of these leaves room for another opinion; a pass and a fail do not.
OPEN: tuple[Status, ...] = ("evidence", "suspected", "not_measured")


def first_boundary(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The chain's first divergence is named, or an earlier boundary with a reason."""
    if proposal.outcome == "nothing_to_repair":
        return  # has a rule of its own
    first = evidence.first_divergence
    chain = first.boundary if first else NONE
    if proposal.first_boundary not in (*BOUNDARIES, NONE):
        yield f"first_boundary {quoted(proposal.first_boundary)} is no boundary; the chain's is {chain}."
    elif proposal.first_boundary != chain:
        yield from _dissent(proposal, evidence, chain)
    elif first is None:
        if proposal.outcome == "experiment":
            yield (
                "No row fails or is suspected, so there is nothing to experiment on; acceptable are nothing_to_repair, "
                "ask_operator, inconclusive, or a reasoned dissent at a boundary with an open row."
            )
    elif proposal.first_row != first.id and not (proposal.first_row is None and proposal.outcome != "experiment"):
        yield f"first_row is {quoted(proposal.first_row)}; the chain's first divergence is {quoted(first.id)}."


def _dissent(proposal: Proposal, evidence: Evidence, chain: str) -> Iterator[str]:
    named = proposal.first_boundary
    if order(named) >= order(chain):
        yield f"first_boundary is {named}, the chain's is {chain}; say {chain}, or dissent at an earlier boundary."
        return
    if not filled(proposal.dissent):
        yield f"first_boundary is {named}, the chain's is {chain}; say {chain}, or give the reason in dissent."
        return
    here = [row for row in evidence.rows if row.boundary == named]
    open_rows = [row.id for row in here if row.status in OPEN]
    if not open_rows:
        yield f"The dissent names {named}, where no row is open (evidence, suspected or not measured)."
    elif proposal.first_row not in open_rows and not (proposal.first_row is None and proposal.outcome != "experiment"):
        row = quoted(proposal.first_row)
        yield f"The dissent at {named} names the row {row}; its open rows are: {listed(open_rows)}."


def dissents(proposal: Proposal, evidence: Evidence) -> bool:
    """Whether the proposal names an earlier boundary than the chain does, and says why."""
    first = evidence.first_divergence
    earlier = order(proposal.first_boundary) < order(first.boundary if first else NONE)
    return earlier and filled(proposal.dissent)


def nothing_to_repair(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Nothing to repair is claimed only where nothing fails, and a suspicion is answered."""
    if proposal.outcome != "nothing_to_repair":
        return
    first = evidence.first_divergence
    if first is not None and first.status == "fail":
        yield f"The row {quoted(first.id)} fails, so there is something to repair; name it, ask, or be inconclusive."
        return
    if proposal.first_boundary != NONE:
        yield f"first_boundary is {quoted(proposal.first_boundary)}; with nothing_to_repair it must be {quoted(NONE)}."
    # A suspicion accuses nobody, but whoever waves it off must say why.
    if first is not None and not filled(proposal.dissent):
        yield f"The row {quoted(first.id)} is suspected; nothing_to_repair must say in dissent why that is no fault."
