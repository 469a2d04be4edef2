"""Whether targets belong to other rows than those they stand beside: a short, closed list of other orders is tried.

Accused is only what reverses the measurement: as they stand, the targets can be read off their inputs no better than
permuted ones; in the other order they can, in one half of the rows and, tried there again, in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.looking_data.probe import (
    KINDS,
    LEAST_ROWS,
    PROBED_ROWS,
    Scores,
    both_ways,
    features_of,
    halves,
    permutations,
    targets_of,
)
from weaklink.collector.looking_data.source import Source

OFFSETS = (1, -1, 2, -2, 3, -3)
# Of each row so many values are compared with those of the row before.
WINDOW = 512


def pairing(source: Source) -> dict[str, Any]:
    """How well the targets can be read off their inputs, and whether another order of the targets reads better.

    Returns:
        `scores`: for each probe and direction the score and the best permutation. `readable`: whether a probe beats
        every permutation in both directions. `order`: the other order that both directions confirm, with its scores,
        or None; only sought where nothing is readable. `serial`: whether neighbouring rows are more alike than others:
        then a target of the next row may be a forecast. `in_order`: whether the script reads them one after the other,
        and a model may carry on what it has read.
    """
    features, columns = features_of(source.inputs), targets_of(source.targets)
    if features is None or columns is None or len(columns) < 2 * LEAST_ROWS:
        return {"unread": "the targets are no class and no few numbers a row, or there are too few rows"}
    scores = {kind: both_ways(features, columns, chosen(len(columns)), kind) for kind in KINDS}
    readable = any(all(one.readable for one in ways) for ways in scores.values())
    return {
        "rows": len(columns),
        "total": source.total,
        "readable": readable,
        "scores": {kind: [shown(one) for one in ways] for kind, ways in scores.items()},
        "serial": is_serial(features, source.numbers) or is_serial(_windows(source.inputs), source.numbers),
        "in_order": source.in_order,
        "order": None if readable else _other_order(features, columns, source),
    }


def is_serial(features: Tensor, numbers: list[int]) -> bool:
    """Whether rows that are stored one after the other are more alike than rows in a permuted order."""
    following = [place for place in range(len(numbers) - 1) if numbers[place + 1] == numbers[place] + 1]
    here = torch.tensor(following, device="cpu")
    orders = torch.cat([torch.arange(len(features), device="cpu")[None], permutations(len(features), 100)])
    apart = [(features[o[here]] - features[o[here + 1]]).square().sum(dim=1).mean() for o in orders]
    return bool(apart[0] < torch.stack(apart[1:]).min())


def _windows(inputs: list[Tensor]) -> Tensor:
    """(rows, values) in the order of their size: windows that slide over a series hold nearly the same ones."""
    flat = [tensor.reshape(len(tensor), -1)[:, :WINDOW].double() for tensor in inputs]
    return torch.cat(flat, dim=1).nan_to_num().sort(dim=1).values


def chosen(rows: int) -> tuple[Tensor, Tensor]:
    """Two halves of the rows, each of as many as are probed."""
    first, second = halves(rows)
    return first[: PROBED_ROWS // 2], second[: PROBED_ROWS // 2]


def _other_order(features: Tensor, columns: Tensor, source: Source) -> dict[str, Any] | None:
    """The first order that beats every permutation in one direction, and again in the other."""
    for name, kept, places in other_orders(source.numbers, source.total):
        moved, here = columns[places], features[kept]
        for kind in KINDS:
            scores = both_ways(here, moved, chosen(len(kept)), kind)
            if all(one.readable for one in scores):
                return {"name": name, "probe": kind, "scores": [shown(one) for one in scores]}
    return None


def other_orders(numbers: list[int], total: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Other orders: a name, the rows that have a target in it, and the place where each one's target stands now."""
    at = {number: place for place, number in enumerate(numbers)}
    for offset in OFFSETS:
        kept = [place for place, number in enumerate(numbers) if number + offset in at]
        if len(kept) >= 2 * LEAST_ROWS:
            moved = [at[numbers[place] + offset] for place in kept]
            yield f"offset {offset:+d}", torch.tensor(kept, device="cpu"), torch.tensor(moved, device="cpu")
    if len(numbers) != total:
        return
    everything = torch.arange(total, device="cpu")
    yield "reversed", everything, everything.flip(0)
    for start in (1, 0):
        listed = torch.tensor(sorted(range(total), key=lambda place: str(place + start)), device="cpu")
        yield "targets listed as text (1, 10, 100, ...)", everything, listed.argsort()
        yield "inputs listed as text (1, 10, 100, ...)", everything, listed


def shown(one: Scores) -> dict[str, float]:
    """A probe's scores as plain numbers."""
    return {"given": one.given, "best_permuted": float(one.permuted.max())}
