"""The same optimizer steps in the parameters' own type and in float32: what of the movement is lost to rounding."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# The same gradient is taken so many times: what accumulates somewhere (a master copy, a compensation) shows by then.
REPEATED = 16
ENTRIES_LIMIT = 20_000_000
LOW = (torch.bfloat16, torch.float16)


def low_precision(optimizer: Optimizer) -> list[Tensor]:
    """Held parameters of a 16-bit type that have a dense gradient now."""
    held = [tensor for group in optimizer.param_groups for tensor in group["params"] if isinstance(tensor, Tensor)]
    return [t for t in held if t.dtype in LOW and t.grad is not None and t.grad.layout == torch.strided]


def compare(optimizer: Optimizer) -> dict[str, Any]:
    """Step from here in the parameters' type, and again in float32, with the gradients that are there.

    Returns:
        entries: How many have a gradient other than zero.
        lost: Of those, how many move in float32 and not in the parameters' own type.
        arrived: The movement's part in the direction of that in float32, 1 where nothing is lost.
        kept: Whether the optimizer keeps what the parameters lose: a master copy, or a compensation.
    """
    parameters = low_precision(optimizer)
    if sum(tensor.numel() for tensor in parameters) > ENTRIES_LIMIT:
        return {"entries": 0}
    before = [tensor.detach().clone() for tensor in parameters]
    gradients = [tensor.grad.clone() for tensor in parameters if tensor.grad is not None]
    storages = [tensor.data for tensor in parameters]
    state = {tensor: copy.deepcopy(optimizer.state.get(tensor, {})) for tensor in parameters}
    low = _stepped(optimizer, parameters, gradients)
    buffers = [dict(optimizer.state.get(tensor, {})) for tensor in parameters]
    for tensor, values, gradient in zip(parameters, before, gradients, strict=True):
        tensor.grad = None
        tensor.data = values.float()
        tensor.grad = gradient.float()
        optimizer.state[tensor] = {key: _wide(value) for key, value in copy.deepcopy(state[tensor]).items()}
    high = _stepped(optimizer, parameters, [gradient.float() for gradient in gradients])
    for tensor, values, gradient, storage in zip(parameters, before, gradients, storages, strict=True):
        tensor.grad = None
        tensor.data = storage.copy_(values)
        tensor.grad = gradient
        optimizer.state[tensor] = state[tensor]
    return _compared(before, gradients, low, high, buffers)


def _stepped(optimizer: Optimizer, parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    for _ in range(REPEATED):
        for tensor, gradient in zip(parameters, gradients, strict=True):
            tensor.grad = gradient.clone()
        optimizer.step()
    return [tensor.detach().clone() for tensor in parameters]


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in LOW else value


def _compared(
    before: list[Tensor],
    gradients: list[Tensor],
    low: list[Tensor],
    high: list[Tensor],
    buffers: list[dict[str, Any]],
) -> dict[str, Any]:
    entries = lost = 0
    along = length = 0.0
    kept = False
    for start, gradient, in_low, in_high, state in zip(before, gradients, low, high, buffers, strict=True):
        live = gradient != 0
        moved_low, moved_high = in_low != start, in_high != start.float()
        entries += int(live.sum())
        lost += int((live & moved_high & ~moved_low).sum())
        movement, whole = (in_low.float() - start.float()).double(), (in_high - start.float()).double()
        along += float((movement * whole).sum())
        length += float((whole * whole).sum())
        kept = kept or any(_keeps(value, in_low.float(), in_high) for value in state.values())
    return {"entries": entries, "lost": lost, "arrived": along / length if length else 1.0, "kept": kept}


def _keeps(value: Any, low: Tensor, high: Tensor) -> bool:
    """Whether a tensor of the optimizer's state is the float32 parameter, or what is missing to it."""
    if not isinstance(value, Tensor) or value.shape != low.shape or not value.is_floating_point():
        return False
    missing = (low - high).norm()
    return bool(missing > 0) and any(
        bool((near - high).norm() < missing / 2) for near in _candidates(value.float(), low)
    )


def _candidates(value: Tensor, low: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return value, low + value, low - value
