"""EVALUATION/metric: whether the script's score compares each answer with its own target."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.evaluated import EvaluationRecord
from weaklink.collector.watching.misread import Kind

_SAID: dict[Kind, str] = {
    "all pairs": "answers of shape ({rows}, 1) and targets of shape ({rows},) meet in the score: each answer is "
    "compared with all {rows} targets",
    "batch axis": "the largest score is looked for over the {rows} examples of a batch, not over an example's classes, "
    "and compared with the targets",
}


def rows(run: Observation) -> list[Row]:
    """One row, where answers were compared with their targets in another arrangement; what is healthy shows nothing."""
    found = run.record(EvaluationRecord).misread
    if not found:
        return []
    first = found[0]
    return [
        Row(
            id="EVALUATION/metric",
            status="fail",
            basis="exact",
            text=_SAID[first.kind].format(rows=first.rows),
            values={"rows": first.rows, "comparisons": len(found)},
            where=[first.site] if first.site is not None else [],
        )
    ]
