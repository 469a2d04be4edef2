"""Inputs that say nothing: what a run learns all the same, it does not learn from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.interventions.trained_batches import TrainedBatches, by_row


class ConstantInput(TrainedBatches):
    """Every row of a batch is the mean of its rows, or, of whole numbers, its first row. Targets stay."""

    name = "constant_input"

    def inputs(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def constant(tensor: Tensor) -> Tensor:
            row = tensor.mean(0, keepdim=True) if tensor.is_floating_point() else tensor[:1]
            other = row.expand_as(tensor).clone()
            if not torch.equal(other, tensor):
                self.note_changed(self._watcher, type(module).__name__, "each input replaced by the batch's mean")
            return other

        changed: tuple[tuple[Any, ...], dict[str, Any]] = by_row((args, kwargs), rows, constant)
        return changed
