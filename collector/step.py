"""One training step on a system's fixed batch, with what is known of it told to the watcher."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from weaklink.collector.preserve import hidden_state
from weaklink.collector.system import TrainingSystem, call_model
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.watcher import Watcher


class StepRefused(Exception):
    """The step cannot be taken; the reason stands in the watcher's examination."""


def train_step(system: TrainingSystem, watcher: Watcher, undoable: bool = False) -> None:
    """Forward, loss, zero_grad, backward, step: the order that tutorials teach.

    Args:
        system: What is trained.
        watcher: Told about the loss, whose function and arguments a script would not show.
        undoable: Clear all gradients by hand, and step only optimizers that can be put back as they were.

    Raises:
        StepRefused: The targets do not fit the outputs, or nothing can be differentiated; the rows say which.
    """
    outputs = call_model(system.model, system.inputs)
    _targets_in_range(system, outputs, watcher)
    loss = _loss(system, outputs, watcher)
    if undoable:
        clear_gradients(system)
    else:
        for optimizer in system.optimizers:
            optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in system.optimizers:
        _step(system, optimizer, watcher, undoable)


def clear_gradients(system: TrainingSystem) -> int:
    """Set every gradient of the model's and the optimizers' parameters to None; how many there were."""
    held = [p for one in system.optimizers for group in one.param_groups for p in group["params"]]
    present = {id(p): p for p in [*system.model.parameters(), *held] if p.grad is not None}
    for parameter in present.values():
        parameter.grad = None
    return len(present)


def _loss(system: TrainingSystem, outputs: Any, watcher: Watcher) -> Tensor:
    watcher.tape.phase = "forward"
    try:
        loss = system.loss_fn(outputs, system.targets)
    except (ValueError, RuntimeError, IndexError) as error:
        rows = rows_of(system.inputs), rows_of(outputs), rows_of(system.targets)
        if None not in rows and rows[2] not in rows[:2]:
            watcher.examined.rows_refused = f"{type(error).__name__}: {str(error)[:200]}"
            raise StepRefused from error
        raise
    watcher.loss_called(system.loss_fn, outputs, system.targets, loss)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        watcher.tape.no_scalar = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise StepRefused
    if not loss.requires_grad:
        watcher.tape.without_graph = True
        watcher.tape.backward_without_graph = watcher.code.site("loss called")
        raise StepRefused
    return loss


def _targets_in_range(system: TrainingSystem, outputs: Any, watcher: Watcher) -> None:
    """Class indices outside the outputs: on an accelerator calling the loss would end the whole process.

    Only where the loss is one of torch's that takes class indices; another one may number its classes as it likes.
    """
    targets, options = system.targets, _class_loss(system.loss_fn)
    if options is None or not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return
    if targets.dtype != torch.long or not targets.numel() or not outputs.dim() or targets.is_meta:
        return
    classes = system.num_classes or outputs.shape[1 if outputs.dim() > 1 else 0]
    room = min(classes, outputs.shape[1 if outputs.dim() > 1 else 0])
    kept = targets[targets != options]
    if not kept.numel():
        return
    low, high = (int(value) for value in torch.stack([kept.min(), kept.max()]).tolist())
    if low < 0 or high >= room:
        watcher.examined.out_of_range = f"{low} .. {high}, and there are {room} classes (0 .. {room - 1})"
        raise StepRefused


def _class_loss(loss_fn: Any) -> int | None:
    """The ignored index of a loss over class indices; None for any other loss."""
    if loss_fn in (functional.cross_entropy, functional.nll_loss):
        return -100
    if type(loss_fn) in (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss):
        return int(loss_fn.ignore_index)
    inner = getattr(loss_fn, "func", None)
    if inner in (functional.cross_entropy, functional.nll_loss):
        return int(getattr(loss_fn, "keywords", {}).get("ignore_index", -100))
    return None


def _step(system: TrainingSystem, optimizer: Optimizer, watcher: Watcher, undoable: bool) -> None:
    hidden = hidden_state(optimizer) if undoable else []
    if hidden:
        reason = f"{type(optimizer).__name__} keeps state that cannot be put back ({', '.join(hidden[:4])})"
        watcher.examined.refuse("UPDATE", f"the step was not taken: {reason}")
        return
    if not needs_closure(optimizer):
        optimizer.step()
        return

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = system.loss_fn(call_model(system.model, system.inputs), system.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether its `step` cannot be called without a closure (LBFGS)."""
    try:
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    except (TypeError, ValueError):
        return False
    return closure is not None and closure.default is inspect.Parameter.empty


def rows_of(batch: Any) -> int | None:
    """Length of the first tensor along dimension 0; None where there is none."""
    first = next((tensor for tensor in tensors_in(batch) if tensor.dim()), None)
    return None if first is None else len(first)
