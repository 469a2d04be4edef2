"""OBJECTIVE/reduction: terms of one loss that are reduced over the elements of an example in different ways."""

from __future__ import annotations

from itertools import pairwise

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.loss_graph import LossFindings

# Samples in a row, up to the end, in which the error was no better than a constant's.
SAMPLES_FOR_STILL = 3
# Before, no model has learned anything.
FIRST_STEP = 20


def rows(run: Observation) -> list[Row]:
    """The row, where a sampled loss had such a pair of terms."""
    seen = run.record(LossFindings).scales
    if not seen:
        return []
    _, last = seen[-1]
    site = next((one.site for _, one in seen if one.site), None)
    other = next((one.other for _, one in seen if one.other), None)
    settled = [(step, one) for step, one in seen if step >= FIRST_STEP]
    late = settled[-SAMPLES_FOR_STILL:]
    # Weights are chosen; where they let the model learn, nobody can say that this one was not.
    falling = all(now.error < before.error for (_, before), (_, now) in pairwise(settled))
    still = len(late) == SAMPLES_FOR_STILL and not falling and all(one.error >= one.constant for _, one in late)
    text = (
        f"the {last.kind} is averaged over {last.averaged} elements of an example, the divergence beside it is summed "
        f"over {last.summed}: the first weighs {last.averaged} times less than its sum would"
    )
    if still:
        text += f"; it is still no better than outputs that ignore their inputs ({last.error:.6f}, {last.constant:.6f})"
    return [
        Row(
            id="OBJECTIVE/reduction",
            status="suspected" if still else "evidence",
            text=text,
            values={"averaged": last.averaged, "summed": last.summed, "error": last.error, "constant": last.constant},
            where=[one for one in (site, other) if one] if still else [],
            step=late[0][0] if still else None,
        )
    ]
