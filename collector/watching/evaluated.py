"""Evaluation as the run saw it: which answers were scored against which targets, and a look at them while they stand.

The rows themselves are copied by `watching/data.py`; here the targets of those that no loader gave are filled in from
the loss that took them, and the moment is kept for a look: the model of the last evaluations, with its pairs.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.evaluating.look import LOOK, EvaluationLook, Trained
from weaklink.collector.evidence import Site
from weaklink.collector.tensors import memory_of, shares_memory, tensors_in
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.datasets import DatasetDifference, differences
from weaklink.collector.watching.misread import Misread, meets_all, misread
from weaklink.collector.watching.pairs import Chunk, Pairs, host_copy
from weaklink.collector.watching.part import RootCall
from weaklink.collector.watching.stages import STAGES, StagesRecord
from weaklink.collector.watching.targets import rows_of_target

if TYPE_CHECKING:
    from weaklink.collector.watching.loss_calls import CalledLoss
    from weaklink.collector.watching.watcher import Watcher

# How training answered lately: the last sampled calls of a loss, and rows of each.
TRAINED_CALLS = 4
TRAINED_ROWS = 128
_PLAIN = (type(None), bool, int, float, str)


@dataclass
class Overlap:
    """Evaluated rows that were compared, those that stand among the training rows, and how many of these there are."""

    evaluated: int
    both: int
    trained: int


@dataclass
class EvaluationRecord:
    """Where evaluation happened.

    Attributes:
        called: Where a model was called without gradients, of calls whose targets are known.
        scored: Where its answers were scored.
        by_loss: Numbers of the calls whose answers a loss took, or were compared with a target: it is certain.
        differences: In what its dataset differs from the trained one.
        overlap: Known at the end.
        misread: Comparisons of answers with their targets in another arrangement.
    """

    called: list[Site] = field(default_factory=list)
    scored: list[Site] = field(default_factory=list)
    by_loss: set[int] = field(default_factory=set)
    differences: list[DatasetDifference] = field(default_factory=list)
    overlap: Overlap | None = None
    misread: list[Misread] = field(default_factory=list)


@dataclass
class _Answered:
    """The last evaluation call, held weakly. `template` is what it was called with, its tensors by number."""

    number: int
    module: weakref.ref[nn.Module]
    output: weakref.ref[Tensor]
    memory: int | None
    rows: int
    template: tuple[Any, dict[str, Any]]
    pairs: Pairs


class EvaluationReader:
    """Pairs answers with targets, and keeps the moment."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._record = watcher.tape.record(EvaluationRecord)
        self._data = watcher.tape.record(DataRecord)
        self._last: _Answered | None = None
        self._compared = False
        self._trained: deque[Trained] = deque(maxlen=TRAINED_CALLS)

    def root_called(self, call: RootCall) -> None:
        """A model answered without gradients."""
        self._last = None
        output = next((tensor for tensor in tensors_in(call.output) if tensor.is_floating_point()), None)
        pairs = self._data.evaluation.get(call.root.serial)
        template = template_of(call.args, call.kwargs)
        if output is None or not output.dim() or pairs is None or template is None:
            return
        self._last = _Answered(
            call.number,
            weakref.ref(call.module),
            weakref.ref(output),
            memory_of(output),
            len(output),
            template,
            pairs,
        )
        chunk = self._chunk(self._last)
        if chunk is None or chunk.target is not None:
            self._hold(self._last)

    def called(self, loss: CalledLoss) -> None:
        """A loss was called without gradients: of the last answer, where it takes that or one of its shape."""
        last = self._last
        output = last.output() if last is not None else None
        if last is None or output is None:
            return
        same = shares_memory(loss.scores, last.memory) or loss.scores.shape == output.shape
        if same and meets_all(tuple(loss.scores.shape), tuple(loss.target.shape)):
            self._misread(Misread("all pairs", last.rows, self._watcher.code.site("error taken over all pairs")))
        if not same or last.number in self._record.by_loss:
            return
        self._scores(last, loss.target, "loss called in evaluation")

    def trained(self, loss: CalledLoss) -> None:
        """A loss was called in a sampled training step: how training itself answers now."""
        rows = min(len(loss.target), TRAINED_ROWS) if loss.target.dim() else 0
        if rows and loss.scores.dim() and len(loss.scores) == len(loss.target):
            scores, target = host_copy(loss.scores, rows), host_copy(loss.target, rows)
            self._trained.append(Trained(self._watcher.tape.steps + 1, scores, target))

    def compared(self, one: Tensor, other: Tensor) -> None:
        """Two tensors were compared: where one is the largest class of the last answer, the other is its target.

        Only of what was copied, so that nothing is computed for long.
        """
        last = self._last
        chunk = self._chunk(last) if last is not None else None
        if last is not None and chunk is not None and chunk.rows == last.rows:
            self._arranged(one, other, chunk)
        if last is None or chunk is None or chunk.output is None or last.number in self._record.by_loss:
            return
        if one.shape != other.shape or not one.dim() or len(one) != last.rows or one.is_floating_point():
            return
        if other.is_floating_point() or chunk.output.dim() != one.dim() + 1:
            return
        largest = [chunk.output.argmax(axis) for axis in (1, -1)]
        for guess, target in ((one, other), (other, one)):
            mine = guess[: chunk.rows].cpu()
            if any(torch.equal(mine, best) for best in largest):
                self._scores(last, target, "answers compared in evaluation")
                return

    def _arranged(self, one: Tensor, other: Tensor, chunk: Chunk) -> None:
        """Whether these are answers and their targets, in another arrangement than they have."""
        if chunk.output is None or chunk.target is None or len(self._record.misread) >= 8:
            return
        kind = misread(one, other, chunk.output, chunk.target)
        site = self._watcher.code.direct_site("answers compared with targets") if kind is not None else None
        if kind is not None and site is not None:
            self._misread(Misread(kind, chunk.rows, site))

    def _misread(self, found: Misread) -> None:
        if len(self._record.misread) < 8:
            self._record.misread.append(found)

    def _scores(self, last: _Answered, target: Tensor, what: str) -> None:
        """The last answer is scored against this target."""
        self._record.by_loss.add(last.number)
        _once(self._record.scored, self._watcher.code.site(what))
        chunk = self._chunk(last)
        if chunk is None:
            return
        known, found = chunk.target is not None, rows_of_target(target, last.rows, chunk.rows)
        chunk.target = found if found is not None else chunk.target
        if not known:
            self._hold(last)

    def finish(self) -> None:
        """Compare the rows that were kept."""
        self._last = None
        self._record.overlap = _overlap(self._data)

    def _chunk(self, last: _Answered) -> Chunk | None:
        """The copy of that call's rows; None where the budget was spent, or another evaluation stands."""
        chunks = last.pairs.chunks
        return chunks[-1] if chunks and chunks[-1].call == last.number else None

    def _hold(self, last: _Answered) -> None:
        module = last.module()
        train = self._data.train.get(last.pairs.root)
        if module is None or train is None or not self._watcher.tape.steps:
            return
        groups = [chunk for chunk in last.pairs.chunks if chunk.target is not None]
        if not groups:
            return
        newest = groups[-1].loader
        if self._trains(groups[-1]):
            return  # a training metric taken again
        _once(self._record.called, self._watcher.code.site("model called in evaluation"))
        if newest is not None and not self._compared:
            self._compared = True
            self._watcher.guarded(self._compare)(newest)
        # A label beside the inputs may be mapped to others on its way to the score, and so may a prediction.
        # The last answer may still be scored.
        scored = self._record.by_loss
        waited = [chunk.call for chunk in groups if chunk.loader == newest and chunk.call != last.number]
        certain = bool(scored) and all(call in scored for call in waited)
        chunks = [chunk for chunk in groups if chunk.loader == newest]
        beside = [chunk for chunk in groups if chunk.loader != newest and not self._trains(chunk)]
        # A stage that begins anew (a head for another task, an adapter) may number and prepare everything otherwise.
        stages = self._watcher.tape.record(StagesRecord).steps
        if len(stages) >= STAGES:
            return  # later ones are not told apart
        begun = stages[-1] if stages else 1
        trained = [chunk for chunk in train.chunks if chunk.step >= begun]
        lately = [one for one in self._trained if one.step >= begun]
        look = EvaluationLook(module, last.template, trained, chunks, certain, lately, beside)
        self._watcher.looks.hold(LOOK, look)

    def _trains(self, chunk: Chunk) -> bool:
        return chunk.loader is not None and self._data.loaders[chunk.loader].trains

    def _compare(self, evaluated: int) -> None:
        """Hold the dataset of an evaluation's loader against the first one that was trained on."""
        loader = self._data.loaders[evaluated].ref()
        trained = next((known.ref() for known in self._data.loaders if known.trains), None)
        if loader is not None and trained is not None:
            self._record.differences = differences(trained.dataset, loader.dataset, self._watcher.code)


def template_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The arguments of a call without their tensors; None where they hold anything but tensors and plain values.

    A tensor is written as its type and device, in the order of `tensors_in`.
    """
    values = [*args, *kwargs.values()]
    if not all(isinstance(value, (Tensor, *_PLAIN)) for value in values):
        return None
    return tuple(_slot(value) for value in args), {name: _slot(value) for name, value in kwargs.items()}


def _slot(value: Any) -> Any:
    return (value.dtype, value.device) if isinstance(value, Tensor) else value


def _overlap(data: DataRecord) -> Overlap | None:
    trained, evaluated = data.trained(), data.evaluated()
    if trained is None or evaluated is None:
        return None
    again = {loader.serial for loader in data.loaders if loader.trains}  # a training metric taken again
    known = {row for chunk in trained.chunks for row in chunk.contents()}
    rows = [row for chunk in evaluated.chunks if chunk.loader not in again for row in chunk.contents()]
    return Overlap(len(rows), sum(row in known for row in rows), len(known)) if rows and known else None


def _once(sites: list[Site], site: Site | None) -> None:
    if site is not None and site not in sites and len(sites) < 8:
        sites.append(site)
