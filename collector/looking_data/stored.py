"""What the stored rows themselves hold: inputs that never change, rows that repeat."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weaklink.collector.looking_data.source import Source, base_of
from weaklink.collector.watching.loaders import LoaderEntry

# A tensor inside the dataset is compared with its items up to this many entries.
COMPARED_ENTRIES = 20_000_000


def still_inputs(source: Source) -> dict[str, Any]:
    """For each floating input of several numbers a row: from which stored row on every row is exactly zero.

    Returns:
        `zero_from`: one number an input, `total` where the last row is not zero. `rows` and `total` of the source.
    """
    starts: list[int | None] = []
    for tensor in source.inputs:
        # One number a row (a dose, a flag) is zero for many by right.
        if not tensor.is_floating_point() or not source.whole or tensor[:1].numel() < 2:
            starts.append(None)
            continue
        filled = (tensor.reshape(len(tensor), -1) != 0).any(dim=1).nonzero().flatten()
        starts.append(int(filled[-1]) + 1 if len(filled) else 0)
    return {"zero_from": starts, "rows": len(source.numbers), "total": source.total}


def repeated(source: Source, loader: LoaderEntry | None) -> dict[str, Any]:
    """How many of the dataset's items differ, and of how many rows that it holds they are.

    Returns:
        `items` that were read, of `total`; how many of them are `distinct`; `held`: distinct rows of the tensor inside
        the dataset that they all are rows of, None where there is no such tensor.
    """
    alive = loader.parts() if loader is not None else None
    if source.kind != "dataset" or alive is None:
        return {"unread": "no dataset that can be read item by item"}
    distinct = torch.unique(source.inputs[0].reshape(len(source.numbers), -1), dim=0)
    held = _held_rows(base_of(alive[0]), distinct)
    return {"items": len(source.numbers), "total": source.total, "distinct": len(distinct), "held": held}


def _held_rows(dataset: Any, distinct: Tensor) -> int | None:
    """Distinct rows of the dataset's own tensor in which every one of these rows stands."""
    for value in vars(dataset).values() if hasattr(dataset, "__dict__") else ():
        if not isinstance(value, Tensor) or value.dim() < 2 or value.numel() > COMPARED_ENTRIES:
            continue
        rows = value.detach().reshape(len(value), -1)
        if rows.shape[1] != distinct.shape[1] or len(rows) <= len(distinct):
            continue
        both = torch.unique(torch.cat([rows.to(distinct.dtype), distinct]), dim=0)
        alone = torch.unique(rows.to(distinct.dtype), dim=0)
        if len(both) == len(alone):
            return len(alone)
    return None
