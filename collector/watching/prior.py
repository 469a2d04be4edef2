"""Vectors of one number a class that enter the loss: class weights, and offsets that are added to the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from weaklink.collector.evaluating.prior import PriorFit, fit_prior
from weaklink.collector.evidence import Site
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.part import RootCall

if TYPE_CHECKING:
    from weaklink.collector.watching.loss_calls import CalledLoss
    from weaklink.collector.watching.watcher import Watcher

CLASS_LIMIT = 1000
ENTRY_LIMIT = 1_000_000
# Adding a vector and taking it away again costs a few roundings of the largest number.
_ROUNDINGS = 8


@dataclass
class PriorRecord:
    """The first vector that was found, and how it fits the counts of the targets; `added`: to the scores."""

    vector: Tensor | None = None
    added: bool = False
    site: Site | None = None
    fit: PriorFit | None = None


class PriorReader:
    """Finds the vector in sampled steps, and compares it once at the end."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._record = watcher.tape.record(PriorRecord)
        self._output: Tensor | None = None

    def root_called(self, call: RootCall) -> None:
        """A model answered with gradients. A copy is kept to the end of backward: its answer may be gone by then."""
        self._output = None
        output = next((tensor for tensor in tensors_in(call.output) if tensor.is_floating_point()), None)
        wanted = self._record.vector is None and output is not None and output.dim() == 2
        if wanted and output is not None and output.shape[1] <= CLASS_LIMIT and output.numel() <= ENTRY_LIMIT:
            self._output = output.detach().clone()

    def called(self, loss: CalledLoss) -> None:
        """A loss over class indices was called."""
        record, scores = self._record, loss.scores
        if record.vector is not None or not loss.indexed or scores.dim() != 2 or scores.shape[1] > CLASS_LIMIT:
            return
        vector, added = loss.weight, False
        if vector is None:
            output = self._output
            vector, added = constant_offset(scores.detach(), output) if output is not None else None, True
        if vector is not None and vector.dim() == 1 and len(vector) == scores.shape[1]:
            record.vector = vector.detach().double().cpu()
            record.added, record.site = added, self._watcher.code.site("loss called")

    def backward_ended(self) -> None:
        """The copy has served."""
        self._output = None

    def finish(self) -> None:
        """Compare with the targets that were copied."""
        record, trained = self._record, self._watcher.tape.record(DataRecord).trained()
        targets = trained.targets() if trained is not None else None
        if record.vector is None or targets is None or targets.is_floating_point() or targets.dim() != 1:
            return
        classes = len(record.vector)
        if not bool(((targets >= 0) & (targets < classes)).all()):
            return
        counts = torch.bincount(targets.long(), minlength=classes)
        logarithms = record.vector if record.added else record.vector.log()
        record.fit = fit_prior(logarithms, counts, falling=not record.added)


def constant_offset(scores: Tensor, output: Tensor) -> Tensor | None:
    """What was added to every row of a model's output alike, (classes,), as float64; None where that is no vector."""
    if output.shape != scores.shape or len(scores) < 2:
        return None
    apart = scores.double() - output.double()
    largest = torch.maximum(scores.abs().amax(), output.abs().amax()).double()
    rounding = _ROUNDINGS * torch.finfo(scores.dtype).eps * largest
    spread = apart[0].amax() - apart[0].amin()
    constant = ((apart - apart[0]).abs().amax() <= rounding) & (spread > 16 * rounding)
    return apart[0] if bool(constant) else None
