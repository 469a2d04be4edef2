"""DEPENDENCY/stop_gradient: a loss that only draws two learned sides together, and outputs that become one constant."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.loss_graph import LossFindings

# Late samples that have to agree.
SAMPLES = 3
# Where the comparison starts: the first steps only bring a random head in line with what it is compared with.
FIRST_STEP = 20


def rows(run: Observation) -> list[Row]:
    """The row, where every sampled loss was one that a constant output would satisfy best."""
    seen = run.record(LossFindings).alignments
    known = [(step, one) for step, one in seen if one is not None]
    if not known or len(known) < len(seen):
        return []
    if any(one.fixed for _, one in known):
        return _fixed() if all(one.fixed for _, one in known) else []
    site = next((one.site for _, one in known if one.site), None)
    settled = [(step, one) for step, one in known if step >= FIRST_STEP]
    last = known[-1][1]
    late = settled[1:][-SAMPLES:]
    # The control is in the run itself: pairs that nobody draws together, against those that the loss does.
    collapsed = len(late) == SAMPLES and all(one.mismatched > settled[0][1].matched for _, one in late)
    text = (
        "the loss raises the similarity of two sides that the same parameters make, and has nothing else: one constant "
        f"output satisfies it best; similarity {last.matched:.4f} of its pairs, {last.mismatched:.4f} of others"
    )
    if collapsed:
        start, first = settled[0]
        text += f": pairs that do not belong together are closer than those that do were at step {start}"
        text += f" ({first.matched:.4f})"
    return [
        Row(
            id="DEPENDENCY/stop_gradient",
            status="suspected" if collapsed else "evidence",
            text=text,
            values={"matched": last.matched, "mismatched": last.mismatched},
            where=[site] if site and collapsed else [],
            step=late[0][0] if collapsed else None,
        )
    ]


def _fixed() -> list[Row]:
    text = "the loss raises a similarity, one side of which is a fixed target"
    return [Row(id="DEPENDENCY/stop_gradient", status="pass", text=text)]
