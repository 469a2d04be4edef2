"""A run that raised: the boundary at which the script was when it did."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.pending import PendingRecord

_BOUNDARY = {"forward": "OBJECTIVE", "evaluation": "EVALUATION", "backward": "GRADIENT", "step": "UPDATE"}


def rows(run: Observation) -> list[Row]:
    """One failing row where the script raised inside a forward, loss, backward, step or evaluation; else none.

    Between a step and the next forward anything may raise (logging, a checkpoint): no boundary is accused for that.
    """
    boundary = _BOUNDARY.get(run.tape.phase)
    if run.raised_text is None or boundary is None or _explained(run):
        return []
    return [
        Row(
            id=f"{boundary}/raised",
            status="fail",
            basis="exact",
            text=f"the script raised here: {run.raised_text}",
            where=[run.raised] if run.raised else [],
            step=run.tape.steps + 1,
        )
    ]


def _explained(run: Observation) -> bool:
    """Whether the step that led to it is known: UPDATE/pending or DEPENDENCY/carried names it, and the exception."""
    return run.tape.phase == "backward" and run.record(PendingRecord).found is not None
