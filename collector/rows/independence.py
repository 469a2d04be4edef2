"""OBJECTIVE: does each output belong to the example whose target it is compared with?"""

from __future__ import annotations

from typing import Any

import torch

from weaklink.collector.evidence import Row
from weaklink.collector.looking.places import sites
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.forwards import ForwardsRecord

ID = "OBJECTIVE/independence"


def independence(run: Observation) -> Row:
    """From a look at a system in hand, or from one in a copy of the script's process."""
    found, text = run.examined.independence, "whether a row's outputs depend on its own inputs alone"
    if found is not None:
        moved = len(found.moved)
        shown = ", ".join(str(row) for row in found.moved[:8])
        return Row(
            id=ID,
            # A graph's nodes and a sequence's steps depend on each other by right: nothing says that rows are examples.
            status="evidence" if moved else "pass",
            text=f"row {found.changed} was changed, in eval mode: "
            + (
                f"{moved} other rows moved too ({shown})" if moved else f"none of the other {found.rows - 1} rows moved"
            ),
            values={"changed": found.changed, "moved": moved},
        )
    look = run.look("rows")
    if look.values is None:
        reason = run.examined.why_not(ID, look.problem or "needs a forward of its own")
        return Row(id=ID, status="not_measured", text=text, reason=reason)
    return _by_look(run, look.values)


def _by_look(run: Observation, values: dict[str, Any]) -> Row:
    changed: list[int] = values["changed"]
    moved: list[list[int]] = values["moved"]
    rows = int(values["rows"])
    numbers: dict[str, Any] = {"changed": len(changed), "rows": rows}
    if all(found == [row] for row, found in zip(changed, moved, strict=True)):
        text = f"{len(changed)} of {rows} rows were changed, one at a time: no other row moved"
        return Row(id=ID, status="pass", text=text, values=numbers)
    single = [(row, found[0]) for row, found in zip(changed, moved, strict=True) if len(found) == 1]
    elsewhere = [(row, there) for row, there in single if row != there]
    # One row moves another one and nothing else, each a different one: an order, and not the one the targets have.
    permuted = len(single) == len(changed) and len({there for _, there in single}) == len(single)
    if permuted and elsewhere and values["paired"] and _has_batches(run):
        row, there = elsewhere[0]
        record = run.record(ForwardsRecord)
        return Row(
            id=ID,
            status="fail",
            basis="exact",
            text=f"the rows leave the model in another order than they enter it: changing row {row} of the inputs "
            f"moves row {there} of the outputs and no other, and the loss compares that with target {there} "
            f"({len(elsewhere)} of {len(changed)} rows)",
            values={**numbers, "elsewhere": len(elsewhere)},
            where=sites(values["where"]) + list(record.call_sites.values())[:1],
            step=1,
        )
    others = sum(found != [row] for row, found in zip(changed, moved, strict=True))
    return Row(
        id=ID,
        # Attention over the batch, graphs, mixtures: rows may depend on each other by right.
        status="evidence",
        text=f"{len(changed)} of {rows} rows were changed, one at a time: {others} of them moved other rows",
        values={**numbers, "moved_others": others},
    )


def _has_batches(run: Observation) -> bool:
    """Whether it was trained on different rows: of one graph's nodes, all there at every step, each may hear one."""
    trained = run.record(DataRecord).trained()
    chunks = trained.alike() if trained is not None else []
    return any(
        not torch.equal(one[: len(other)], other[: len(one)])  # the last one may be kept in part
        for chunk in chunks[1:]
        for one, other in zip(chunks[0].inputs, chunk.inputs, strict=True)
    )
