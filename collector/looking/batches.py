"""A batch that the run trained on, kept to be shown to a model again: bounded copies, nothing of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.looking.objective import Objective
from weaklink.collector.preserve import preserved
from weaklink.collector.tensors import mapped, tensors_in
from weaklink.collector.watching.context import is_transformed, mode_matters

BATCH_BYTES = 8 * 1024 * 1024
_PLAIN = (type(None), bool, int, float, str, Tensor)


@dataclass
class TrainingBatch:
    """What a model was called with, copied, and the loss of what it answered."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    objective: Objective | None = None

    def outputs(self, model: nn.Module) -> list[Tensor]:
        """The model's floating-point outputs for this batch; each call draws the same random numbers."""
        torch.manual_seed(0)
        return floating(model(*fresh(self.args), **fresh(self.kwargs)))

    def first_rows(self, rows: int) -> TrainingBatch:
        """The first rows alone, where every tensor has one row an example; else the batch as it is."""
        objective = self.objective
        if objective is None or not objective.shape or objective.shape[0] <= rows:
            return self
        whole = objective.shape[0]
        tensors = [*tensors_in([self.args, self.kwargs]), objective.targets]
        if any(not tensor.dim() or len(tensor) != whole for tensor in tensors):
            return self
        cut = replace(objective, shape=(rows, *objective.shape[1:]), targets=objective.targets[:rows])
        args, kwargs = (mapped(given, lambda tensor: tensor[:rows]) for given in (self.args, self.kwargs))
        return TrainingBatch(args, kwargs, cut)

    def loss(self, model: nn.Module) -> Tensor:
        """The objective's loss of the model as it is.

        Raises:
            ValueError: The objective was not recognised.
        """
        if self.objective is None:
            raise ValueError("the loss is none that is recognised in the graph")
        return self.objective.loss(self.outputs(model))


def floating(output: Any) -> list[Tensor]:
    """The floating-point tensors in a model's output, in order."""
    return [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]


def copied(value: Any) -> Any:
    """A detached copy of the arguments of a call; None where they hold anything but plain tensors, or too much."""
    if not _is_plain(value):
        return None
    tensors = list(tensors_in(value))
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > BATCH_BYTES:
        return None
    strange = (t.is_meta or t.is_nested or t.layout != torch.strided or is_transformed(t) for t in tensors)
    return None if any(strange) else fresh(value)


def fresh(value: Any) -> Any:
    """The same nest with copies of its tensors: a model may change its inputs in place."""
    return mapped(value, lambda tensor: tensor.detach().clone())


def _is_plain(value: Any, depth: int = 4) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value.values())
    if isinstance(value, (tuple, list)):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    return isinstance(value, _PLAIN)


@contextmanager
def quiet(*models: nn.Module) -> Iterator[None]:
    """Dropout off and normalisation by running statistics, everything else in the mode that it is in.

    Undone at the end with whatever else was changed meanwhile, and without gradients.
    """
    with preserved(models), torch.no_grad():
        for model in models:
            for module in model.modules():
                if mode_matters(module):
                    module.training = False
        yield


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in train or in eval mode, without gradients; undone at the end."""
    with preserved([model]), torch.no_grad():
        model.train(training)
        yield
