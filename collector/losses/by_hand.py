"""What a loss comes to by hand, and how elements become one number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Roundings that one term of a loss goes through (an exponential, a logarithm, a product, a sum) are a few.
_ROUNDINGS = 8


@dataclass(frozen=True)
class ByHand:
    """One loss, computed again in float64.

    Attributes:
        kind: The loss in words: "cross entropy", "mean squared error", ...
        reduction: "mean", "sum", "batchmean" or "none".
        value: The reduced loss; None for reduction "none".
        first: The unreduced loss of the first element (example 0 where each example has one); None of an empty batch.
        floor: The least value the reduced loss can take for these targets over all outputs of the kind that it expects
            (any scores, probabilities, or log-probabilities); None where that is unknown or without bound.
        output_shape: Shape of the outputs as they were given.
        target_shape: Shape of the targets as they were given.
        broadcast: Joint shape, where outputs and targets differ in shape and were broadcast; else None.
        first_target: Target of the first element, where it is one number.
        rounding: Bound on what the outputs' own precision can change in `value`.
        positive: Whether entries that should be log-probabilities exceed zero by more than rounding; None for losses
            that take none.
    """

    kind: str
    reduction: str
    value: float | None
    first: float | None
    floor: float | None
    output_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    broadcast: tuple[int, ...] | None = None
    first_target: float | int | None = None
    rounding: float = 0.0
    positive: bool | None = None

    @property
    def below_floor(self) -> bool:
        """Whether the value is one that this loss cannot take, by more than rounding explains."""
        return self.value is not None and self.floor is not None and self.value < self.floor - self.rounding


@dataclass(frozen=True)
class Unreduced:
    """Loss element by element, in float64 and of one shape.

    Attributes:
        kind: The loss in words.
        losses: What reduction "none" returns. An ignored element is zero.
        magnitudes: Size of the terms each element was added up from: what rounding is relative to.
        floors: Least value each element can take; None where unknown.
        divisor: What "mean" divides the sum by, a scalar tensor; None: the number of elements.
        positive: See `ByHand`; a scalar tensor.
        unit: Unit in the last place of what the arguments were made in, where that may be coarser than their own.
    """

    kind: str
    losses: Tensor
    magnitudes: Tensor
    floors: Tensor | None = None
    divisor: Tensor | None = None
    positive: Tensor | None = None
    unit: float = 0.0


def readable(tensor: Tensor) -> Tensor:
    """Detached; on the host where the device has no float64."""
    values = tensor.detach()
    return values.cpu() if values.device.type == "mps" else values


def wide(tensor: Tensor) -> Tensor:
    """Detached and in float64."""
    return readable(tensor).double()


def times_log(values: Tensor) -> Tensor:
    """x log x, zero at zero. NaN for a negative share, as torch's own: there is no such probability."""
    return torch.where(values == 0, torch.zeros_like(values), values * values.log())


def epsilon(tensor: Tensor) -> float:
    """Unit in the last place of one, in the tensor's own precision; zero for integers."""
    return torch.finfo(tensor.dtype).eps if tensor.dtype.is_floating_point else 0.0


def reduce(
    unreduced: Unreduced,
    reduction: str,
    outputs: Tensor,
    targets: Tensor,
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> ByHand:
    """Mean, sum or batch mean of the elements, with their floor and rounding. One transfer to the host.

    Args:
        unreduced: The elements.
        reduction: "mean", "sum", "batchmean" or "none".
        outputs: The outputs as they entered; their precision bounds the rounding.
        targets: The targets.
        shapes: Shapes of the outputs and targets before they were broadcast; None: they are those of the tensors.
    """
    losses = unreduced.losses
    parts = [losses, unreduced.magnitudes]
    if unreduced.floors is not None:
        parts.append(unreduced.floors)
    scalars = [part.sum() / _divisor(unreduced, reduction, outputs) for part in parts]
    scalars.append(losses.flatten()[0] if losses.numel() else losses.new_tensor(math.nan))
    scalars.append(_first_target(targets).to(losses) if _has_first(targets, losses) else losses.new_tensor(math.nan))
    scalars.append(unreduced.positive.to(losses) if unreduced.positive is not None else losses.new_tensor(math.nan))
    numbers: list[float] = torch.stack([scalar.reshape(()) for scalar in scalars]).tolist()
    value, magnitude, first, first_target, positive = numbers[0], numbers[1], *numbers[-3:]
    floor = numbers[2] if unreduced.floors is not None and math.isfinite(numbers[2]) else None
    output_shape, target_shape = shapes or (tuple(outputs.shape), tuple(targets.shape))
    elementwise = unreduced.kind not in ("cross entropy", "negative log-likelihood")
    return ByHand(
        unreduced.kind,
        reduction,
        value if reduction != "none" else None,
        first if losses.numel() else None,
        floor if reduction != "none" else None,
        output_shape,
        target_shape,
        tuple(losses.shape) if elementwise and output_shape != target_shape else None,
        None if math.isnan(first_target) else first_target if targets.is_floating_point() else int(first_target),
        _ROUNDINGS * max(epsilon(outputs), epsilon(targets), unreduced.unit) * magnitude
        if math.isfinite(magnitude)
        else 0.0,
        None if unreduced.positive is None else bool(positive),
    )


def _divisor(unreduced: Unreduced, reduction: str, outputs: Tensor) -> Tensor:
    losses = unreduced.losses
    if reduction == "mean":
        return losses.new_tensor(losses.numel()) if unreduced.divisor is None else unreduced.divisor
    if reduction == "batchmean" and outputs.dim():
        return losses.new_tensor(outputs.shape[0])
    return losses.new_tensor(1.0)


def _has_first(targets: Tensor, losses: Tensor) -> bool:
    # A row of class probabilities is no single number, and neither has a batch of nothing a first one.
    return targets.numel() > 0 and losses.numel() >= targets.numel()


def _first_target(targets: Tensor) -> Tensor:
    return targets.detach().flatten()[0]
