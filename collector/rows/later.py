"""CAPABILITY and EVALUATION: not part of an observed run. They say so, rather than stay silent."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation


def rows(run: Observation) -> list[Row]:
    """Rows that need a run of their own, as not measured."""
    return [
        Row(
            id="CAPABILITY/tiny_batch",
            status="not_measured",
            text="whether the training system fits a tiny fixed batch",
            reason="needs a run of its own",
        ),
        Row(
            id="EVALUATION/mode_gap",
            status="not_measured",
            text="the same data in train and in eval mode",
            reason="needs a forward of its own",
        ),
    ]
