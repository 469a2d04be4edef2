"""OBJECTIVE/axes: whether the scores of one position reach the loss as the scores of that position."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.loss_graph import LossFindings


def rows(run: Observation) -> list[Row]:
    """One row, where a view stands in the place of a transposition."""
    found = run.record(LossFindings).exchanges
    if not found:
        return []
    step, exchange = found[0]
    return [
        Row(
            id="OBJECTIVE/axes",
            status="fail",
            basis="exact",
            text=f"scores of shape {list(exchange.outputs)} are viewed as {list(exchange.scores)} for a loss over "
            f"{exchange.scores[1]} classes: a view moves no number, so that the classes of one position are numbers of "
            "several",
            values={"outputs": list(exchange.outputs), "scores": list(exchange.scores)},
            where=[exchange.site] if exchange.site is not None else [],
            step=step,
        )
    ]
