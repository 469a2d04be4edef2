"""Whether each row of the outputs comes from the same row of the inputs, and from no other.

One row is changed; with dropout off and running statistics used, no other row may move. If exactly one row moves and it
is another one, the rows left the model in another order than they entered it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.looking.batches import TrainingBatch, fresh, quiet
from weaklink.collector.looking.places import Places
from weaklink.collector.tensors import tensors_in

# Rows that are changed, one after the other.
ROWS = 12


def look_at_rows(model: nn.Module, batch: TrainingBatch, places: Places) -> dict[str, Any]:
    """Change rows of the batch one by one; answers which rows of the outputs moved.

    Returns:
        `rows`, `changed` (the rows that were changed), `moved` (for each of them the rows that moved, at most 8),
        `paired` (the loss compares outputs and targets row by row, in the order in which they leave the model, and some
        row that moves stands beside another target than the one that was changed),
        `where` (the call of the part that gives the outputs).

    Raises:
        ValueError: The batch has no rows, or the outputs have none.
    """
    objective = batch.objective
    if objective is None:
        raise ValueError("the loss is none that is recognised in the graph")
    first = next((tensor for tensor in tensors_in([batch.args, batch.kwargs]) if tensor.dim()), None)
    rows = len(objective.targets) if objective.targets.dim() else 0
    if first is None or rows < 3 or len(first) != rows:
        raise ValueError("no input has a row for each row of the targets")
    with quiet(model):
        plain = _scores(model, batch, batch.args, batch.kwargs)
        if len(plain) != rows:
            raise ValueError("the outputs have no row for each row of the inputs")
        if not torch.equal(plain, _scores(model, batch, batch.args, batch.kwargs)):
            raise ValueError("two forwards of one batch do not agree bit for bit")
        changed: list[int] = []
        moved: list[list[int]] = []
        for row in range(min(rows, ROWS)):
            found = _moved(model, batch, first, row, plain)
            if found is not None:
                changed.append(row)
                moved.append(found)
        known = _order_is_known(model, batch, rows)
        calls = places.of_calls(model, lambda: batch.outputs(model))
    if not changed:
        raise ValueError("no change of a row moved an output")
    paired = not known and not _reorders(batch)
    matters = any(
        not torch.equal(objective.targets[a], objective.targets[b[0]]) for a, b in zip(changed, moved, strict=True)
    )
    last = next((place for _, place in reversed(calls) if place), [])
    return {
        "rows": rows,
        "changed": changed,
        "moved": [found[:8] for found in moved],
        "paired": paired and matters,
        "where": last,
    }


def _moved(model: nn.Module, batch: TrainingBatch, first: Tensor, row: int, plain: Tensor) -> list[int] | None:
    """The rows that move when this one changes: at its first position alone, else as a whole."""
    for whole in (False, True):
        changed = _changed(first, row, whole)
        if changed is None:
            continue
        args, kwargs = _with(batch.args, first, changed), _with(batch.kwargs, first, changed)
        after = _scores(model, batch, args, kwargs)
        if after.shape != plain.shape:
            return None
        differs = (after != plain).flatten(1).any(dim=1) if plain.dim() > 1 else after != plain
        if found := [int(index) for index in differs.nonzero().flatten().tolist()]:
            return found
    return None


def _changed(first: Tensor, row: int, whole: bool) -> Tensor | None:
    """A copy with one row taken from another: a first position that differs, so that lengths stay what they are."""
    for other in range(len(first)):
        own, theirs = first[row], first[other]
        if not whole and first.dim() > 1:
            own, theirs = own[:1], theirs[:1]
        # Zero is what padding is made of: a row that begins or ends otherwise may be sorted otherwise.
        if other != row and not torch.equal(own, theirs) and (whole or bool((own != 0).any() and (theirs != 0).any())):
            changed = first.clone()
            if whole or first.dim() == 1:
                changed[row] = first[other]
            else:
                changed[row, :1] = theirs
            return changed
    return None


def _with(value: Any, old: Tensor, new: Tensor) -> Any:
    if isinstance(value, dict):
        return {key: _with(item, old, new) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_with(item, old, new) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_with(item, old, new) for item in value)
    return new if value is old else value


def _scores(model: nn.Module, batch: TrainingBatch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    assert batch.objective is not None
    shown = TrainingBatch(args, kwargs, batch.objective)
    return batch.objective.scores(shown.outputs(model))


def _reorders(batch: TrainingBatch) -> bool:
    """Whether the model was given the targets in another order than the loss took them: it reorders both by right."""
    assert batch.objective is not None
    targets = batch.objective.targets
    for tensor in tensors_in([batch.args, batch.kwargs]):
        alike = tensor.shape == targets.shape and tensor.dtype == targets.dtype and not torch.equal(tensor, targets)
        if alike and torch.equal(tensor.flatten().sort().values, targets.flatten().sort().values):
            return True
    return False


def _order_is_known(model: nn.Module, batch: TrainingBatch, rows: int) -> bool:
    """Whether the model is given its order, answers with it or keeps it: then the script may order its targets too."""
    torch.manual_seed(0)
    output = model(*fresh(batch.args), **fresh(batch.kwargs))
    kept = [value for module in model.modules() for value in vars(module).values()]
    return any(_is_order(tensor, rows) for tensor in tensors_in([batch.args, batch.kwargs, output, kept]))


def _is_order(tensor: Tensor, rows: int) -> bool:
    if tensor.is_floating_point() or tuple(tensor.shape) != (rows,) or tensor.dtype == torch.bool:
        return False
    return torch.equal(tensor.sort().values, torch.arange(rows, device=tensor.device, dtype=tensor.dtype))
