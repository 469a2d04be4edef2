"""The data as the run saw it: which loader gave which rows, and copies of the pairs of input and target.

For rows, after the run: `record = run.record(DataRecord)`.

- `record.loaders`: a `LoaderEntry` for every `DataLoader`: where it was made and iterated, its dataset's length, its
  sampler, passes, row numbers drawn, the first batch of each pass, whether a model was trained or evaluated with it.
- `record.train` and `record.evaluation`: `Pairs` by serial number of the model, of calls with and without gradients:
  `pairs.inputs()`, `pairs.targets()`, `pairs.outputs()` are host copies over all rows; `pairs.chunks` tells the calls
  apart (which loader, which step, which row numbers). Training keeps the first rows up to the budget; evaluation
  starts over with the 1st, 2nd, 4th, 8th, ... evaluation, so that one of the second half stands at the end.
- `record.trained()` and `record.evaluated()`: of these the model with most rows that have a target.
- `columns(tensor)` of `watching/columns.py`: statistics of such copies by column or channel.

A target is the tensor that the loss's own graph kept (cross entropy, mean squared error, ...). Where the graph shows
none, and in evaluation, it is the tensor of the loader's batch at the place that a loss once took, else the last one
beside the input that has a row for each row.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.looking.objective import find_objective
from weaklink.collector.looking_data import batches, scale
from weaklink.collector.looking_data.look import NAME, look_at_data
from weaklink.collector.looking_data.source import base_of
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.collation import collation_site, item_site
from weaklink.collector.watching.context import is_transformed
from weaklink.collector.watching.loaders import COMPARED_PASSES, Batch, Leaf, LoaderEntry
from weaklink.collector.watching.loading import Loading
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.pairs import INPUT_LIMIT, Budget, Chunk, Pairs, host_copy
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.tape import BackwardSample, StepSample
from weaklink.collector.watching.targets import rows_of_target, target_of

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

MODEL_LIMIT = 4


@dataclass
class DataRecord:
    """What was seen of the data. See the module's own words."""

    loaders: list[LoaderEntry] = field(default_factory=list)
    train: dict[int, Pairs] = field(default_factory=dict)
    evaluation: dict[int, Pairs] = field(default_factory=dict)
    evaluations: int = 0
    # A batch of plain numbers was seen in which some column lies no farther from zero than its values lie apart.
    centred: bool = False

    def trained(self) -> Pairs | None:
        """The model with most trained rows that have a target."""
        return _largest(self.train)

    def evaluated(self) -> Pairs | None:
        """The same, of the evaluation that was kept."""
        return _largest(self.evaluation)


@dataclass
class _Waiting:
    """A call with gradients whose loss is still to come: of `rows` rows the chunk keeps the first ones."""

    pairs: Pairs
    chunk: Chunk
    rows: int
    batch: Batch | None
    leaves: list[Leaf]
    # The model, where it was called with these inputs and nothing else.
    model: weakref.ref[nn.Module] | None = None


class DataPart(Part):
    """Follows loaders and calls, and copies rows until the budget is spent."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(DataRecord)
        self.loading = Loading(watcher, self._wants)
        self.record.loaders = self.loading.book.entries
        self._train = Budget()
        self._evaluation = Budget()
        self._evaluated_at: int | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._looked = False

    def install(self) -> None:
        self.loading.install()

    def root_called(self, call: RootCall) -> None:
        budget = self._budget(call.with_gradients)
        if budget.spent and self.loading.is_known(call.with_gradients):
            return
        inputs = _inputs(call)
        if not inputs:
            return
        batch, leaves = self.loading.batch_of(inputs)
        if batch is not None:
            batch.loader.used_by(call.with_gradients, leaves)
        # From a device only in sampled steps: copying makes the run wait for it.
        if budget.spent or not (call.sampled or inputs[0].device.type == "cpu"):
            return
        pairs = self._pairs(call)
        chunk = self._chunk(call, inputs, batch, budget) if pairs is not None else None
        if pairs is None or chunk is None:
            return
        alone = not call.kwargs and len(call.args) == len(inputs)
        model = weakref.ref(call.module) if alone else None
        waiting = _Waiting(pairs, chunk, len(inputs[0]), batch, leaves, model)
        if call.with_gradients:
            self._waiting[call.root.serial] = waiting
        else:
            _keep(waiting, None)

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        target = target_of(losses[0]) if losses and self.watcher.saved_tensors_readable else None
        for one in waiting.values():
            _keep(one, target)
            if sample is None or target is None:
                continue
            if scale.is_offset(one.chunk.inputs):
                self._look_at_scale(one, losses)
            elif scale.is_table(one.chunk.inputs):
                self.record.centred = True

    def _look_at_scale(self, one: _Waiting, losses: list[Tensor]) -> None:
        """Hold this moment; the 1st, 2nd, 4th, ... of them: by then there are batches to train on."""
        model = one.model() if one.model is not None else None
        if model is None or one.chunk.output is None or one.chunk.rows != one.rows:
            return
        objective = find_objective(losses, [one.chunk.output])
        if objective is None or not objective.shape or objective.shape[0] != one.rows:
            return
        optimizers = [optimizer for _, optimizer in self.watcher.optimizers.alive()]
        chunks = one.pairs.alike()
        self.watcher.looks.hold(scale.NAME, lambda: scale.look_at_scale(model, optimizers, chunks, objective))

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        if sample is not None and not self._looked:
            self._look()
        for one in self._waiting.values():  # no backward came: gradients that were taken otherwise
            _keep(one, None)
        self._waiting.clear()

    def _wants(self, loader: LoaderEntry) -> bool:
        """Not those of a loader that was iterated often enough and only trains, once no more rows are copied."""
        often = loader.passes > COMPARED_PASSES
        return not (often and self._train.spent and loader.trains and not loader.evaluation_calls)

    def _look(self) -> None:
        """After the first step that rows with targets are known of, while datasets and tensors are alive."""
        pairs = self.record.trained()
        if pairs is None:
            return
        self._looked = True
        chunk = pairs.chunks[-1]
        loader = self.record.loaders[chunk.loader] if chunk.loader is not None else None
        if loader is not None and (parts := loader.parts()) is not None:
            code, dataset = self.watcher.code, base_of(parts[0])
            loader.collated = collation_site(parts[1], loader.target_path, code)
            loader.inputs_read = item_site(dataset, next(iter(loader.input_paths), (0,)), code)
            loader.targets_read = item_site(dataset, loader.target_path, code)
        self.watcher.looks.take(NAME, lambda: look_at_data(loader, chunk, self.watcher.code))

    def finish(self) -> None:
        """What takes many batches, and nothing of the script's that may be gone by now."""
        pairs = self.record.trained()
        if pairs is not None and self._looked:
            self.watcher.looks.take(batches.NAME, lambda: batches.layouts(pairs.alike()))

    def _budget(self, with_gradients: bool) -> Budget:
        if with_gradients:
            return self._train
        if self._evaluated_at != self.tape.steps:
            self._evaluated_at = self.tape.steps
            self.record.evaluations += 1
            self._evaluation = Budget()
            if self.record.evaluations & (self.record.evaluations - 1):
                self._evaluation.rows = 0  # the 3rd, 5th, 6th, ...: the one before stands
            else:
                self.record.evaluation.clear()
        return self._evaluation

    def _pairs(self, call: RootCall) -> Pairs | None:
        kept = self.record.train if call.with_gradients else self.record.evaluation
        serial = call.root.serial
        if serial not in kept and len(kept) < MODEL_LIMIT:
            kept[serial] = Pairs(serial, self.watcher.code.site(f"{call.root.class_name} called"))
        return kept.get(serial)

    def _chunk(self, call: RootCall, inputs: list[Tensor], batch: Batch | None, budget: Budget) -> Chunk | None:
        rows = len(inputs[0])
        copies = budget.copy(inputs, rows)
        if not copies:
            return None
        kept = len(copies[0])
        indices = batch.indices if batch is not None else None
        output = next((tensor for tensor in tensors_in(call.output) if tensor.is_floating_point()), None)
        return Chunk(
            call.number,
            self.tape.steps + 1,
            batch.loader.serial if batch is not None else None,
            list(indices[:kept]) if indices is not None and len(indices) == rows else None,
            copies,
            None,
            _answers(output, rows, kept, budget),
        )


def _inputs(call: RootCall) -> list[Tensor]:
    """The tensors a model was given that have one row for each row of the first."""
    given = [tensor for tensor in tensors_in((call.args, call.kwargs)) if _readable(tensor)]
    return [tensor for tensor in given if len(tensor) == len(given[0])][:INPUT_LIMIT]


def _readable(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_nested or tensor.is_complex())
    return plain and tensor.dim() > 0 and len(tensor) > 0 and not is_transformed(tensor)


def _answers(output: Tensor | None, rows: int, kept: int, budget: Budget) -> Tensor | None:
    if output is None or not _readable(output) or len(output) != rows:
        return None
    size = output[:1].numel() * 4 * kept
    if size > budget.bytes:
        return None
    budget.bytes -= size
    return host_copy(output, kept)


def _keep(waiting: _Waiting, target: Tensor | None) -> None:
    chunk, batch = waiting.chunk, waiting.batch
    chunk.target = rows_of_target(target, waiting.rows, chunk.rows)
    if batch is not None:
        if target is not None:
            batch.loader.loss_took(target, batch.leaves)
        if chunk.target is None:
            chunk.target = rows_of_target(batch.target(waiting.leaves, waiting.rows), waiting.rows, chunk.rows)
    waiting.pairs.chunks.append(chunk)


def _largest(kept: dict[int, Pairs]) -> Pairs | None:
    known = [pairs for pairs in kept.values() if pairs.chunks and pairs.targets() is not None]
    return max(known, key=lambda pairs: pairs.rows, default=None)
