"""OBJECTIVE/sequence: the targets of a connectionist temporal classification against the lengths given with them."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.loss_graph import LossFindings


def rows(run: Observation) -> list[Row]:
    """The row, where a sampled loss was such a one."""
    seen = run.record(LossFindings).sequences
    if not seen:
        return []
    rows_seen = sum(one.rows for _, one in seen)
    with_blank, blanks = sum(one.with_blank for _, one in seen), sum(one.blanks for _, one in seen)
    scored, impossible = sum(one.scored for _, one in seen), sum(one.impossible for _, one in seen)
    text = f"{rows_seen} sequences, {scored} labels scored, {blanks} of them the blank in {with_blank} sequences"
    if with_blank and all(one.full for _, one in seen):
        text += "; every length is the width of the padded targets: padding is scored as labels"
    # Labels that no alignment fits have an infinite loss, which zero_infinity leaves out without a word.
    lost = rows_seen > 0 and impossible == rows_seen
    if impossible:
        text += f"; {impossible} have more labels than frames, so that no alignment exists"
    accused = bool(with_blank) or lost
    step, first = next(((s, one) for s, one in seen if one.with_blank), seen[0])
    return [
        Row(
            id="OBJECTIVE/sequence",
            status="fail" if accused else "evidence" if impossible else "pass",
            basis="exact" if accused else None,
            text=text,
            values={"sequences": rows_seen, "with_blank": with_blank, "blanks": blanks, "impossible": impossible},
            where=[first.site] if accused and first.site else [],
            step=step if accused else None,
        )
    ]
