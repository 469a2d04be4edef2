"""Whether one part of the rows is labelled by the opposite convention: probes fitted on one block, held on another.

The contrast stands inside the data. In each block the two classes can be read off the inputs; a probe fitted on some
blocks reads the opposite in the others, beyond every permutation; and nothing in an input tells which kind of block
it is from, so that no model could follow both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weaklink.collector.looking_data.alignment import chosen
from weaklink.collector.looking_data.probe import (
    KINDS,
    LEAST_ROWS,
    Probe,
    both_ways,
    features_of,
    is_classes,
    probed,
    targets_of,
)
from weaklink.collector.looking_data.source import Source

# Each of the first few is held against all others, and the one that tells most of them leads.
LEADS = 3
BLOCKS = 16


def conventions(source: Source) -> dict[str, Any]:
    """Blocks of neighbouring rows, held against each other.

    Returns:
        `groups`: 0 for blocks that agree with the one that tells most, 1 for its opposite, None where a block shows
        nothing. `across`: scores of a probe fitted on one group and held against the other; `inverted`: whether both
        are worse than every permutation. `pooled`, `turned`: a probe over both groups, with the labels as they are and
        with those of the second group turned around; `mended`: whether it reads better then, in both directions, and
        beats every permutation. `visible`: whether an input tells which group it is from. `in_order`: whether the
        script reads them one after the other.
    """
    features, columns = features_of(source.inputs), targets_of(source.targets)
    if features is None or columns is None or not is_classes(columns) or columns.shape[1] != 2:
        return {"unread": "takes targets of two classes"}
    columns = columns[:, :1]
    count = min(BLOCKS, len(columns) // LEAST_ROWS)
    if count < 4:
        return {"unread": f"takes {4 * LEAST_ROWS} rows"}
    size = len(columns) // count
    blocks = [torch.arange(block * size, (block + 1) * size, device="cpu") for block in range(count)]
    groups = _groups(features, columns, blocks)
    found: dict[str, Any] = {"groups": groups, "starts": [source.numbers[int(block[0])] for block in blocks]}
    found["in_order"] = source.in_order
    members = [[block for block, group in zip(blocks, groups, strict=True) if group == which] for which in (0, 1)]
    if any(len(one) < 2 for one in members):
        return found  # one block alone may be a matter of chance
    return {**found, **_contrast(features, columns, torch.cat(members[0]), torch.cat(members[1]))}


def _contrast(features: Tensor, columns: Tensor, first: Tensor, second: Tensor) -> dict[str, Any]:
    across = both_ways(features, columns, (first, second), "ridge")
    turned, marks = columns.clone(), torch.zeros_like(columns)
    turned[second], marks[second] = 1.0 - turned[second], 1.0
    everything = torch.cat([first, second])
    one, other = chosen(len(everything))
    sides = everything[one], everything[other]
    pooled, mended = both_ways(features, columns, sides, "ridge"), both_ways(features, turned, sides, "ridge")
    visible = [score for kind in KINDS for score in both_ways(features, marks, sides, kind)]
    return {
        "across": [score.given for score in across],
        "inverted": all(score.inverted for score in across),
        "pooled": [score.given for score in pooled],
        "turned": [score.given for score in mended],
        "mended": all(b.readable and b.given > a.given for a, b in zip(pooled, mended, strict=True)),
        "visible": any(score.readable for score in visible),
    }


def _groups(features: Tensor, columns: Tensor, blocks: list[Tensor]) -> list[int | None]:
    """Each block against the first that tells most of the others: the same (0), the opposite (1), or undecided."""
    best: list[int | None] = []
    for lead in range(min(LEADS, len(blocks))):
        found: list[int | None] = [
            0 if block is blocks[lead] else _agreement(features, columns, blocks[lead], block) for block in blocks
        ]
        if not best or found.count(None) < best.count(None):
            best = found
    return best


def _agreement(features: Tensor, columns: Tensor, fitted: Tensor, held: Tensor) -> int | None:
    found = probed(Probe(features[fitted], features[held], "ridge"), columns[fitted], columns[held])
    return 0 if found.readable else 1 if found.inverted else None
