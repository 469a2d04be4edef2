"""Does a step of plain SGD move each parameter by minus rate times gradient? The update, checked by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import Loop, LossFn, keeping, to_host, trainable


@dataclass(frozen=True)
class SgdEquation:
    """Largest abs(observed movement + lr * gradient) over the entries of each parameter: rounding, and nothing else."""

    lr: float
    residuals: dict[str, float]

    def __str__(self) -> str:
        rows = [(name, f"{value:.2e}") for name, value in self.residuals.items()]
        return table(f"SGD lr {self.lr:g}", ("parameter", "max |delta + lr * gradient|"), rows)


def sgd_equation(model: nn.Module, inputs: Any, targets: Any, loss_fn: LossFn, lr: float = 0.1) -> SgdEquation:
    """One step of torch's own SGD on the batch, compared with the arithmetic that it stands for; undone afterwards.

    Parameters that received no gradient are left out.
    """
    with keeping(model, loss_fn, inputs, targets) as kept:
        named = trainable(model, loss_fn)
        loop = Loop(model, inputs, targets, loss_fn, [torch.optim.SGD(named.values(), lr=lr)])
        loop.backward()
        loop.step()
        with torch.no_grad():
            received = {name: (p, p.grad) for name, p in named.items() if p.grad is not None and p.numel()}
            largest = [(p - kept.copies[id(p)].to(p.device) + lr * g).abs().max() for p, g in received.values()]
        return SgdEquation(lr, dict(zip(received, to_host(largest), strict=True)))
