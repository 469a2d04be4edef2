"""Leave broken examples out: the one change that tells bad inputs from a model that breaks good ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import dataloader

from weaklink.collector.interventions.functions import replace
from weaklink.collector.interventions.trained_batches import TrainedBatches, by_row
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class DropRows(TrainedBatches):
    """A batch of a loader comes without the rows that hold a value that is not finite, in all of its tensors.

    What reaches a model otherwise is cut there, and the targets of losses of torch with it. A batch of nothing but
    such rows stays as it is.
    """

    name = "drop_rows"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._kept: Tensor | None = None
        replace(dataloader._BaseDataLoaderIter, ("__next__",), self._batch)

    @unseen_by_warnings
    def _batch(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        batch = original(*args, **kwargs)
        rows = next((len(t) for t in tensors_in(batch) if t.dim()), 0)
        kept = _finite_rows(batch, rows)
        return batch if kept is None else self._cut(batch, rows, kept)

    def inputs(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._kept = _finite_rows((args, kwargs), rows)
        if self._kept is None:
            return args, kwargs
        cut: tuple[tuple[Any, ...], dict[str, Any]] = self._cut((args, kwargs), rows, self._kept)
        return cut

    def targets(self, name: str, targets: Tensor, rows: int) -> Tensor:
        kept = self._kept
        if kept is None or not targets.dim() or len(targets) % rows:
            return targets
        apart = targets.reshape(rows, len(targets) // rows, *targets.shape[1:])
        return apart[kept.to(targets.device)].flatten(0, 1)

    def _cut(self, given: Any, rows: int, kept: Tensor) -> Any:
        self.note_changed(self._watcher, "batch", f"{rows - int(kept.sum())} of {rows} rows left out")
        return by_row(given, rows, lambda tensor: tensor[kept.to(tensor.device)])


def _finite_rows(given: Any, rows: int) -> Tensor | None:
    """Which rows hold finite values alone, (rows,); None where all or none of them do."""
    kept: Tensor | None = None
    for tensor in tensors_in(given):
        if not tensor.dim() or len(tensor) != rows or not tensor.is_floating_point():
            continue
        finite = torch.isfinite(tensor).reshape(rows, -1).all(1).cpu()
        kept = finite if kept is None else kept & finite
    return kept if kept is not None and bool(kept.any()) and not bool(kept.all()) else None
