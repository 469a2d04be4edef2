"""A training system as one object: what a factory returns, and what the ledger works on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from weaklink.collector.tensors import mapped


@dataclass
class TrainingSystem:
    """One model, its optimizer, its loss and one fixed batch: everything a learning chain is read from.

    A factory is a function without arguments that returns one: `weaklink diagnose train.py:build`.

    Attributes:
        model: The network that is trained.
        optimizer: The optimizer that trains it, or several.
        inputs: What the model is called with: a tensor, a tuple (positional) or a dictionary (by keyword).
        targets: What the loss compares the outputs with; of any kind that `loss_fn` takes.
        loss_fn: `loss_fn(outputs, targets)` gives the scalar that is minimised.
        num_classes: How many classes the targets may have; by default what the outputs have room for.
        rule: `rule(inputs)` gives the targets that belong to these inputs, where that is known.
        expected: Patterns over the names of the parameters meant to be trained; by default all that require a gradient.
        task: One sentence: what one input and one target mean.
        steps: Training steps of an observed run.
        capability_steps: Steps of the tiny-batch fits (CAPABILITY); 0 leaves them out.
        validation: Inputs and targets that are not trained on, for EVALUATION.
    """

    model: nn.Module
    optimizer: Optimizer | Sequence[Optimizer]
    inputs: Any
    targets: Any
    # Looked up when the system is made: an experiment may stand in for it by then.
    loss_fn: Callable[[Any, Any], Tensor] = field(default_factory=lambda: functional.cross_entropy)
    num_classes: int | None = None
    rule: Callable[[Any], Any] | None = None
    expected: str | Sequence[str] | None = None
    task: str | None = None
    steps: int = 50
    capability_steps: int = 0
    validation: tuple[Any, Any] | None = None

    @property
    def modules(self) -> list[nn.Module]:
        """What of the system are modules: the model, and a loss that is one."""
        return [self.model, *([self.loss_fn] if isinstance(self.loss_fn, nn.Module) else [])]

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers, one or several, as a list."""
        return list(self.optimizer) if isinstance(self.optimizer, (list, tuple)) else [self.optimizer]  # type: ignore[list-item]


def call_model(model: nn.Module, inputs: Any) -> Any:
    """The model's outputs: a tuple or list is passed by position, a mapping by keyword, anything else as it is."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def without_history(batch: Any) -> Any:
    """The batch, each tensor that was computed from something else as a leaf of its own.

    A backward of ours would otherwise run on into the user's graph: free it, and leave gradients beyond the model.
    """
    return mapped(batch, lambda t: t if t.is_leaf else t.detach().requires_grad_(t.requires_grad))


def held_by(function: Any) -> list[Any]:
    """What calling a function may change: itself where it is a module, what it is bound to, and modules that it uses.

    Of a plain function those modules count that it closes over or names: `lambda outputs, y: criterion(outputs, y)`.
    """
    if isinstance(function, functools.partial):
        return [*held_by(function.func), *function.args, *function.keywords.values()]
    if isinstance(function, MethodType):
        return [function.__self__, *held_by(function.__func__)]
    if not isinstance(function, FunctionType):
        return [function]
    named = [function.__globals__.get(name) for name in _names(function.__code__)]
    return [used for used in [*named, *map(_content, function.__closure__ or ())] if isinstance(used, nn.Module)]


def _names(code: CodeType) -> set[str]:
    """Names that a function uses, also in functions inside of it."""
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
