"""The same few examples in every step: whether the training can fit anything at all, apart from what data it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.interventions.trained_batches import TrainedBatches, by_row
from weaklink.collector.tensors import tensors_in

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class PinBatch(TrainedBatches):
    """The first n examples of a model's first batch, again and again until every batch has its own number of rows.

    So shapes, averages and the script's own counts stay what they are. Targets of losses of torch go with them.
    """

    name = "pin_batch"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._inputs: dict[int, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = {}
        self._targets: dict[tuple[int, int], Tensor] = {}
        self._model, self._calls = 0, 0

    def inputs(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        n = int(str(self.parameters["n"]))
        self._model, self._calls = id(module), 0
        if id(module) not in self._inputs:
            kept = by_row((args, kwargs), rows, lambda tensor: tensor.detach()[:n].clone())
            self._inputs[id(module)] = (module, *kept)
        _, first_args, first_kwargs = self._inputs[id(module)]
        pinned = (_pinned(args, first_args, rows), _pinned(kwargs, first_kwargs, rows))
        if any(not _alike(a, b) for a, b in zip(tensors_in((args, kwargs)), tensors_in(pinned), strict=True)):
            self.note_changed(self._watcher, type(module).__name__, f"its first {n} examples again")
        return pinned

    def targets(self, name: str, targets: Tensor, rows: int) -> Tensor:
        key, self._calls = (self._model, self._calls), self._calls + 1
        if not targets.dim() or len(targets) % rows:
            return targets
        # (rows * steps, ...) is (rows, steps, ...) laid end to end.
        apart = targets.reshape(rows, len(targets) // rows, *targets.shape[1:])
        first = self._targets.setdefault(key, apart[: int(str(self.parameters["n"]))].detach().clone())
        if first.shape[1:] != apart.shape[1:]:
            return targets
        return _repeated(first, rows).reshape(targets.shape).to(targets)


def _repeated(first: Tensor, rows: int) -> Tensor:
    return first[torch.arange(rows, device=first.device) % len(first)]


def _pinned(given: Any, first: Any, rows: int) -> Any:
    """The first examples in the places of a batch; a tensor of another shape stays."""
    if isinstance(given, Tensor):
        fits = isinstance(first, Tensor) and given.dim() and len(given) == rows and given.shape[1:] == first.shape[1:]
        return _repeated(first, rows).to(given) if fits else given
    if type(given) in (tuple, list) and len(given) == len(first):
        return type(given)(_pinned(a, b, rows) for a, b in zip(given, first, strict=True))
    if type(given) is dict and given.keys() == first.keys():
        return {key: _pinned(given[key], first[key], rows) for key in given}
    return given


def _alike(one: Tensor, other: Tensor) -> bool:
    return one is other or torch.equal(one, other)
