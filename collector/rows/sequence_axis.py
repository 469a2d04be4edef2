"""OBJECTIVE/sequence_axis: whether recurrent layers and attention run over an example's steps, or over the examples."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Value
from weaklink.collector.looking_data.look import NAME
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.forwards import ForwardsRecord
from weaklink.collector.watching.sequence_axis import AxisRecord

ID = "OBJECTIVE/sequence_axis"


def rows(run: Observation) -> list[Row]:
    """One row, where all such layers run along the rows of the targets."""
    record = run.record(AxisRecord)
    if not record.over_rows or record.otherwise:
        return []
    text = (
        f"{record.kind} is given {record.rows} rows of {record.steps} steps and runs over the rows: its steps come "
        f"first, batch_first is not set ({record.over_rows} sampled batches)"
    )
    values: dict[str, Value] = {"rows": record.rows, "steps": record.steps, "batches": record.over_rows}
    proof = _heard(run)
    if proof is None or not _exchangeable(run):
        # Rows that are the steps of one long series follow each other by right.
        return [Row(id=ID, status="evidence", text=text, values=values)]
    called = list(run.record(ForwardsRecord).call_sites.values())[:1]
    return [
        Row(
            id=ID,
            status="fail",
            basis="exact",
            text=f"{text}; {proof}",
            values=values,
            where=[*([record.made] if record.made is not None else []), *called],
            step=1,
        )
    ]


def _heard(run: Observation) -> str | None:
    """What changing a row of the inputs does: it moves other rows, or not even its own."""
    look = run.look("rows")
    if look.values is None:
        blind = "no change of a row moved an output"
        return "changing a row's inputs moves no output at all" if blind in (look.problem or "") else None
    others = [row for row, found in zip(look.values["changed"], look.values["moved"], strict=True) if found != [row]]
    return f"changing row {others[0]} of the inputs moves the outputs of other rows" if others else None


def _exchangeable(run: Observation) -> bool:
    """Whether the rows of a batch are drawn in no order: then nothing of one belongs to the next."""
    source = (run.look(NAME).values or {}).get("source") or {}
    return source.get("in_order") is False
