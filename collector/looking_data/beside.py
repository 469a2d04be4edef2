"""What stands beside an input elsewhere in memory: the record it was made from may tell another target.

A dataset that was built from records (a mapping or a tuple for each example) and hands out the records' own tensors
can be held against them: the same tensor object, and another value beside it. Accused is only what reverses the
measurement: beside the dataset's targets nothing can be read off the inputs, beside the records' values it can.
"""

from __future__ import annotations

import ast
import gc
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.looking_data.alignment import chosen, shown
from weaklink.collector.looking_data.probe import KINDS, LEAST_ROWS, both_ways, features_of, targets_of
from weaklink.collector.watching.loaders import leaves_in
from weaklink.collector.watching.sites import UserCode

ITEMS = 1024
# A record holds a few values; a longer container is a collection of records.
FIELDS = 16

# Kind of container, and key or position in it.
Place = tuple[str, str | int]


def records(dataset: Any, code: UserCode) -> dict[str, Any]:
    """Values that stand beside the items' own input tensors in records, tried as their targets.

    To be asked only where the dataset's own targets cannot be read off its inputs.

    Returns:
        `record`: the field whose value can be read off the input in both directions, its scores and where the
        dataset's class reads that field; None where there is none.
    """
    inputs = [tensor for number in range(min(len(dataset), ITEMS)) if (tensor := _input(dataset[number])) is not None]
    if len(inputs) < 2 * LEAST_ROWS or len({tensor.shape for tensor in inputs}) > 1:
        return {"unread": "the items hold no tensors of one shape"}
    features = features_of([torch.stack(inputs)])
    if features is None:
        return {"unread": "the inputs are constant"}
    for place, values in _fields(inputs).items():
        if len(values) < len(inputs):
            continue
        numbered = {value: number for number, value in enumerate(dict.fromkeys(values.values()))}
        columns = targets_of(torch.tensor([numbered[values[item]] for item in range(len(inputs))], device="cpu"))
        if columns is None or len(numbered) < 2:
            continue
        for kind in KINDS:
            scores = both_ways(features, columns, chosen(len(inputs)), kind)
            if all(one.readable for one in scores):
                site = reading_line(type(dataset), place[1], code)
                return {
                    "record": {
                        "field": str(place[1]),
                        "scores": [shown(one) for one in scores],
                        "site": site.model_dump() if site is not None else None,
                    }
                }
    return {"record": None}


def reading_line(kind: type, key: str | int, code: UserCode) -> Site | None:
    """The first line of a class that takes this field out of a record."""
    try:
        lines, start = inspect.getsourcelines(kind)
        file = code.relative(inspect.getsourcefile(kind) or "")
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    if file is None:
        return None
    for node in ast.walk(tree):
        taken = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == key
        if taken or (isinstance(node, ast.Attribute) and node.attr == key):
            line = start + node.lineno - 1  # type: ignore[attr-defined]
            return Site(file=file, line=line, what=f"takes {key!r} out of the records")
    return Site(file=file, line=start, what="the dataset's class")


def _input(item: Any) -> Tensor | None:
    """The first floating tensor of an item, as the object that it is."""
    return next((tensor for _, tensor in leaves_in(item) if tensor.is_floating_point() and tensor.dim()), None)


def _fields(inputs: list[Tensor]) -> dict[Place, dict[int, Any]]:
    """For every place in records that hold one of the inputs: the value there, by the input's number."""
    numbers = {id(tensor): number for number, tensor in enumerate(inputs)}
    found: dict[Place, dict[int, Any]] = {}
    for holder in gc.get_referrers(*inputs):
        entries = list(_entries(holder))
        held = [numbers[id(value)] for _, value in entries if id(value) in numbers]
        if len(held) != 1:
            continue
        for key, value in entries:
            plain = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
            if isinstance(plain, (str, bytes, int, float)):
                found.setdefault((type(holder).__name__, key), {})[held[0]] = plain
    return found


def _entries(holder: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(holder, dict) and len(holder) <= FIELDS:
        yield from ((key, value) for key, value in holder.items() if isinstance(key, (str, int)))
    elif isinstance(holder, (tuple, list)) and len(holder) <= FIELDS:
        yield from enumerate(holder)
