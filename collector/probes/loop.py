"""What the instruments share: the plain training loop on one fixed batch, and the parameters it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.errors import ProbeError
from weaklink.collector.preserve import Kept, hidden_state, preserved
from weaklink.collector.step import needs_closure
from weaklink.collector.system import call_model, held_by, without_history

LossFn = Callable[[Any, Any], Tensor]


class PlainSgd:
    """Gradient descent without momentum or decay, entry for entry what torch's own SGD does.

    No torch optimizer: one of ours would pass through the user's step hooks.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self._parameters = list(parameters)
        self._lr = lr

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Subtract rate times gradient."""
        with torch.no_grad():
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-self._lr)


class Loop:
    """Forward, loss, zero_grad, backward, step: the order that tutorials teach, in the mode the model is in.

    Args:
        model: Called with `inputs` as `call_model` does.
        inputs: The fixed batch.
        targets: What belongs to it.
        loss_fn: `loss_fn(outputs, targets)` gives a scalar.
        optimizers: Step in this order.
    """

    def __init__(
        self, model: nn.Module, inputs: Any, targets: Any, loss_fn: LossFn, optimizers: Sequence[Optimizer | PlainSgd]
    ) -> None:
        self._model, self._inputs, self._targets, self._loss_fn = model, inputs, targets, loss_fn
        self._optimizers = optimizers

    def backward(self) -> tuple[Any, Tensor]:
        """One forward and its gradients, earlier ones cleared: the outputs and the loss, without its graph."""
        with torch.enable_grad():
            outputs, loss = forward(self._model, self._inputs, self._targets, self._loss_fn)
            for optimizer in self._optimizers:
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        return outputs, loss.detach()

    def step(self) -> None:
        """Let every optimizer take the step that it would take; one that needs a closure gets it."""
        for optimizer in self._optimizers:
            if isinstance(optimizer, PlainSgd) or not needs_closure(optimizer):
                optimizer.step()
            else:
                optimizer.step(lambda: self._closure())  # type: ignore[arg-type,return-value]

    def _closure(self) -> Tensor:
        return self.backward()[1]


def forward(model: nn.Module, inputs: Any, targets: Any, loss_fn: LossFn) -> tuple[Any, Tensor]:
    """The outputs and the loss, with their graph."""
    outputs = call_model(model, without_history(inputs))
    return outputs, loss_fn(outputs, without_history(targets))


def keeping(
    model: nn.Module, loss_fn: LossFn | None, inputs: Any, targets: Any = None, optimizers: Sequence[Any] = ()
) -> AbstractContextManager[Kept]:
    """`preserved` around all parts of a system."""
    return preserved([model], optimizers, [inputs, targets, *held_by(loss_fn)])


def trainable(model: nn.Module, loss_fn: LossFn) -> dict[str, nn.Parameter]:
    """Parameters that require a gradient, by name; those of a loss that is a module follow as `loss.<name>`."""
    named = dict(model.named_parameters())
    if isinstance(loss_fn, nn.Module):
        own = {id(parameter) for parameter in named.values()}
        named.update({f"loss.{name}": p for name, p in loss_fn.named_parameters() if id(p) not in own})
    return {name: parameter for name, parameter in named.items() if parameter.requires_grad}


def as_list(optimizer: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One or several optimizers, as a list."""
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]  # type: ignore[list-item]


def why_not_undoable(optimizers: Sequence[Optimizer]) -> str | None:
    """Why a step of these cannot be taken back; None where it can."""
    for optimizer in optimizers:
        hidden = hidden_state(optimizer)
        if hidden:
            return f"{type(optimizer).__name__} keeps state that cannot be put back: {', '.join(hidden)}"
    return None


def must_be_undoable(optimizers: Sequence[Optimizer]) -> None:
    """Refuse optimizers whose step would leave traces.

    Raises:
        ProbeError: Names the state that could not be put back.
    """
    reason = why_not_undoable(optimizers)
    if reason:
        raise ProbeError(
            f"The optimizer's step cannot be undone: {reason}.", about="optimizer", hint="measure a copy of it."
        )


def at_least_one(value: int, name: str) -> None:
    """Refuse a number of steps that measures nothing.

    Raises:
        ProbeError: Names the argument.
    """
    if value < 1:
        raise ProbeError(f"{value} steps measure nothing.", about=name, hint="give 1 or more.")


def to_host(scalars: Sequence[Tensor]) -> list[float]:
    """The values of tensors of one entry each; one transfer a device."""
    groups: dict[torch.device, list[int]] = defaultdict(list)
    for position, scalar in enumerate(scalars):
        groups[scalar.device].append(position)
    found = [0.0] * len(scalars)
    for device, positions in groups.items():
        wide = torch.float32 if device.type == "mps" else torch.float64  # which Apple's device does not have
        chosen = torch.stack([scalars[i].detach().reshape(()).to(wide) for i in positions])
        for position, value in zip(positions, chosen.tolist(), strict=True):
            found[position] = value
    return found
