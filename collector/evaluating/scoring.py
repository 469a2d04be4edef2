"""Scoring rows: the share of a row's positions that are right, or the negative squared error; and the sign test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.tensors import tensors_in

# By chance alone, one evaluation in ten thousand would look as different.
CHANCE = 1e-4


@dataclass
class Caller:
    """Calls a model as the run did, with other tensors in the places of its own.

    `template`: positional and keyword arguments; a tensor's place holds its type and device.
    """

    module: nn.Module
    template: tuple[Any, dict[str, Any]]

    def outputs(self, inputs: list[Tensor]) -> Tensor:
        """The first floating-point output, on the host in float32.

        Raises:
            ValueError: There are more or fewer places than tensors, or no such output.
        """
        args, kwargs = self.template
        given = iter(inputs)
        places = [self._filled(slot, given) for slot in args]
        named = {name: self._filled(slot, given) for name, slot in kwargs.items()}
        if next(given, None) is not None:
            raise ValueError("the call has fewer tensors than were copied")
        with torch.no_grad():
            answer = self.module(*places, **named)
        output = next((tensor for tensor in tensors_in(answer) if tensor.is_floating_point()), None)
        if output is None:
            raise ValueError("the model answers with no numbers")
        return output.detach().to("cpu", torch.float32)

    def _filled(self, slot: Any, given: Any) -> Any:
        if not isinstance(slot, tuple):
            return slot
        tensor = next(given, None)
        if tensor is None:
            raise ValueError("the call has more tensors than were copied")
        return tensor.to(device=slot[1], dtype=slot[0])


def predicted(output: Tensor, target: Tensor) -> Tensor | None:
    """Class predictions of the target's shape, (rows, ...); None where the target is no class.

    Classes stand second, or last for sequences whose target has all other dimensions.
    """
    if target.is_floating_point() or target.dtype == torch.bool:
        return None
    if output.dim() == target.dim() + 1 and output.shape[1] > 1:
        if output.dim() > 2 and output.shape[:-1] == target.shape:
            return output.argmax(-1)
        if output.shape[:1] + output.shape[2:] == target.shape:
            return output.argmax(1)
    return None


def row_scores(output: Tensor, target: Tensor) -> Tensor | None:
    """One number a row, more is better, in float64; None where output and target cannot be compared.

    Of classes the share of right positions, of those whose target is a class at all; of numbers minus the mean squared
    error.
    """
    guess = predicted(output, target)
    if guess is not None:
        classes = output.shape[-1] if output.shape[:-1] == target.shape else output.shape[1]
        known = ((target >= 0) & (target < classes)).reshape(len(target), -1)
        right = (guess == target).reshape(len(target), -1) & known
        return right.sum(1).double() / known.sum(1).clamp(min=1)
    if not target.is_floating_point() or output.numel() != target.numel() or len(output) != len(target):
        return None
    apart = output.reshape(len(output), -1).double() - target.reshape(len(target), -1).double()
    return -(apart * apart).mean(1)


def sign_test(better: int, worse: int) -> float:
    """Chance that as many of `better + worse` fair coins, or more, fall on the first side."""
    total = better + worse
    logs = [
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - total * math.log(2)
        for k in range(better, total + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs)) if total else 1.0


@dataclass
class Comparison:
    """Rows that another reading scores better and worse than the run's own, and the means of both."""

    better: int
    worse: int
    own: float
    other: float

    @property
    def chance(self) -> float:
        return sign_test(self.better, self.worse)

    def closes_gap_to(self, training: float) -> bool:
        """Whether the other reading scores nearer to training than to the run's own evaluation."""
        return self.own < self.other and abs(training - self.other) < abs(self.other - self.own)


def compare(own: Tensor, other: Tensor) -> Comparison:
    """Two scores of the same rows."""
    return Comparison(
        int((other > own).sum()), int((other < own).sum()), float(own.mean()), float(other.mean())
    )  # fmt: skip


Mapping = Callable[[Tensor], Tensor]
