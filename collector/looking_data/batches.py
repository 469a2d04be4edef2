"""Whether targets belong to other rows of their own batch: stacked along one dimension, repeated along another.

Several views of an example are stacked next to each other, or one whole set of views after the other; targets laid out
in the other way meet other rows. Tried is every layout of a batch as a grid read by columns instead of by rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weaklink.collector.looking_data.alignment import chosen, shown
from weaklink.collector.looking_data.probe import KINDS, LEAST_ROWS, both_ways, features_of, targets_of
from weaklink.collector.watching.pairs import Chunk

NAME = "batches"


def layouts(chunks: list[Chunk]) -> dict[str, Any]:
    """Copies of the trained batches, their targets as they stand and in each other layout.

    Returns:
        `readable`: whether a probe reads the targets as they stand, in both directions; `layout`: the grid in which
        both directions read them, with its scores, or None.
    """
    rows = chunks[0].rows
    whole = [chunk for chunk in chunks if chunk.rows == rows and chunk.target is not None]
    if not whole or len(whole) * rows < 2 * LEAST_ROWS:
        return {"unread": "too few whole batches were kept"}
    features = features_of([torch.cat(list(parts)) for parts in zip(*(chunk.inputs for chunk in whole), strict=True)])
    columns = targets_of(torch.cat([chunk.target for chunk in whole if chunk.target is not None]))
    if features is None or columns is None:
        return {"unread": "the targets are no class and no few numbers a row"}
    sides = chosen(len(columns))
    given = {kind: both_ways(features, columns, sides, kind) for kind in KINDS}
    readable = any(all(one.readable for one in ways) for ways in given.values())
    found: dict[str, Any] = {
        "readable": readable,
        "layout": None,
        "scores": {kind: [shown(one) for one in ways] for kind, ways in given.items()},
    }
    for across in range(2, rows // 2 + 1):
        if readable or rows % across:
            continue
        moved = columns[_by_columns(len(whole), rows, across)]
        for kind in KINDS:
            scores = both_ways(features, moved, sides, kind)
            if all(one.readable for one in scores):
                return {**found, "layout": [across, rows // across], "moved": [shown(one) for one in scores]}
    return found


def _by_columns(batches: int, rows: int, across: int) -> Tensor:
    """Place of each row's target, where every batch is a grid of `across` rows that is read by columns."""
    inside = torch.arange(rows, device="cpu").reshape(across, rows // across).T.reshape(-1)
    return (torch.arange(batches, device="cpu")[:, None] * rows + inside).reshape(-1)
