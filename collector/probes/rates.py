"""Is it the learning rate? Plain SGD at several rates, from one and the same state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import Loop, LossFn, PlainSgd, at_least_one, keeping, to_host, trainable


@dataclass(frozen=True)
class RateTrial:
    """The loss before the first step, and after the last."""

    lr: float
    first: float
    last: float


@dataclass(frozen=True)
class LearningRates:
    """One trial a rate."""

    steps: int
    trials: tuple[RateTrial, ...]

    def __str__(self) -> str:
        rows = [(f"{t.lr:g}", f"{t.first:.4f}", f"{t.last:.4f}") for t in self.trials]
        return table("plain SGD", ("lr", "loss at step 0", f"at step {self.steps}"), rows)


def learning_rates(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    loss_fn: LossFn,
    rates: Sequence[float] = (1e-5, 1e-3, 1e-1, 1, 10),
    steps: int = 100,
) -> LearningRates:
    """Train on the fixed batch at each rate, always from the present state and with the same random numbers.

    Raises:
        ProbeError: Fewer than one step.
    """
    at_least_one(steps, "steps")
    ends: list[Tensor] = []
    for rate in rates:
        with keeping(model, loss_fn, inputs, targets):
            sgd = PlainSgd(trainable(model, loss_fn).values(), rate)
            loop = Loop(model, inputs, targets, loss_fn, [sgd])
            first = last = loop.backward()[1]
            for _ in range(steps):
                loop.step()
                last = loop.backward()[1]
            ends += [first, last]
    values = to_host(ends)
    return LearningRates(steps, tuple(RateTrial(float(r), *values[2 * i : 2 * i + 2]) for i, r in enumerate(rates)))
