"""What gradients look like that nobody clears and no step consumes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import LossFn, at_least_one, forward, keeping, trainable
from weaklink.collector.tensors import norms


@dataclass(frozen=True)
class Accumulation:
    """Total gradient norm after each backward call, the gradients of all earlier ones included."""

    norms: tuple[float, ...]

    def __str__(self) -> str:
        rows = [(str(index + 1), f"{norm:.6f}") for index, norm in enumerate(self.norms)]
        return table("never cleared", ("backward call", "gradient norm"), rows)


def accumulation(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    loss_fn: LossFn,
    iterations: int = 5,
    parameters: Iterable[Tensor] | None = None,
) -> Accumulation:
    """Call backward again and again on the same batch, without clearing and without stepping; undone afterwards.

    Nothing moves, so that each call adds the same gradient and the norm grows by the same amount: a run whose norms
    grow like this steps nothing that the loss reaches, and clears nothing.

    Args:
        model: In the mode that it is in.
        inputs: The batch.
        targets: Of any kind that `loss_fn` takes.
        loss_fn: `loss_fn(outputs, targets)` gives a scalar.
        iterations: Backward calls.
        parameters: Whose gradients are read; by default every trainable parameter's.

    Raises:
        ProbeError: Fewer than one iteration.
    """
    at_least_one(iterations, "iterations")
    trained = list(trainable(model, loss_fn).values())
    read = trained if parameters is None else list(parameters)
    found = []
    with keeping(model, loss_fn, inputs, [targets, read]):
        for tensor in [*trained, *read]:
            tensor.grad = None
        for _ in range(iterations):
            with torch.enable_grad():
                forward(model, inputs, targets, loss_fn)[1].backward()  # type: ignore[no-untyped-call]
            found.append(hypot(*norms([tensor.grad for tensor in read if tensor.grad is not None])))
    return Accumulation(tuple(found))
