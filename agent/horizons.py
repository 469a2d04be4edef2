"""How far the reruns of an experiment go, by what means they measure, and what that will cost."""

from __future__ import annotations

from dataclasses import dataclass

from weaklink.agent.close_up import beginnings
from weaklink.agent.measurements import measured_keys, parse_key
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence, Row

# Optimizer steps. Of 43 right repairs 29 had parted from their faults by step 50, 37 by step 200.
SHORTEST_HORIZON = 50
EXTENDED_HORIZON = 200
LONGEST_HORIZON = 1000
# The extension is the whole run where the observed one took no longer than this.
WHOLE_RUN_SECONDS = 60.0
RERUNS = 4

Horizon = int | None
"""Optimizer steps after which a rerun stops; None is the whole run."""


@dataclass(frozen=True)
class Means:
    """What a rerun does besides watching: looks in copies of its process, a close-up from each of these steps on."""

    look: bool = False
    starts: tuple[int, ...] = ()


def horizons(evidence: Evidence, proposal: Proposal, asked: int | None) -> list[Horizon]:
    """The first horizon, and the extension where the first does not decide. One that the user asked for stands alone.

    A row of the evaluation, and one that reads the run's later stages, needs the whole run.
    """
    if asked is not None:
        return [asked]
    row = evidence.row(proposal.first_row) if proposal.first_row else None
    whole = _whole(evidence)
    if row is None or row.boundary == "EVALUATION":
        return [whole]
    first = default_horizon(row)
    if first >= max(evidence.outcome.steps, 1) and evidence.outcome.steps:
        return [whole]
    longer = max(EXTENDED_HORIZON, 2 * first)
    affordable = evidence.outcome.seconds <= WHOLE_RUN_SECONDS or len(evidence.stages) > 1
    if affordable or longer >= evidence.outcome.steps:
        return [first, whole]
    return [first, longer]


def default_horizon(row: Row) -> int:
    """Twice the step at which the evidence appeared, at least 50."""
    onset = row.step if row.step is not None else 1
    # Where the row dates from an early step, its consequence may show much later.
    turned = row.values.get("nonfinite_from_step")
    onset = max(onset, turned) if isinstance(turned, int) else onset
    return max(SHORTEST_HORIZON, min(2 * onset, LONGEST_HORIZON))


def _whole(evidence: Evidence) -> Horizon:
    """To the end; where a deadline cut the observed run, as far as that came: reruns must end at the same step."""
    outcome = evidence.outcome
    return max(outcome.steps, 1) if outcome.ended == "deadline" else None


def means(evidence: Evidence, proposal: Proposal) -> Means:
    """What it takes to measure every row that the proposal's predictions speak about."""
    wanted = {proposal.first_row}
    for text in measured_keys(proposal):
        key = parse_key(text)
        if key is not None and key.argument is not None:
            wanted.add(key.argument)
    rows = [row for row in evidence.rows if row.id in wanted]
    close = any("close_up" in row.means for row in rows)
    starts = tuple(beginnings(evidence)) if close else ()
    return Means(any("look" in row.means for row in rows), starts)


def cost(evidence: Evidence, plan: list[Horizon]) -> str:
    """One line on what the reruns will take, from what the observed run took."""
    steps = max(evidence.outcome.steps, evidence.outcome.backwards, 1)
    first = f"up to {_steps(plan[0], steps)} steps, about {_seconds(evidence, plan[0], steps)} s in all"
    text = f"rerun    {RERUNS} reruns of {first}"
    if len(plan) == 1:
        return text
    longer, seconds = _steps(plan[1], steps), _seconds(evidence, plan[1], steps)
    return f"{text}; up to {longer} steps and {seconds} s more where that does not decide"


def _steps(horizon: Horizon, steps: int) -> int:
    return steps if horizon is None else min(horizon, steps)


def _seconds(evidence: Evidence, horizon: Horizon, steps: int) -> int:
    share = _steps(horizon, steps) / steps
    return max(1, round(RERUNS * max(evidence.outcome.seconds * share, 0.05)))
