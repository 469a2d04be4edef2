"""What each layer lets through: scale, zeros, and whether it still tells the rows of the batch apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.probes.calls import listen
from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import keeping, to_host
from weaklink.collector.system import call_model
from weaklink.collector.tensors import tensors_in


@dataclass(frozen=True)
class Activation:
    """The output of one call of a layer.

    Attributes:
        name: The module's; one that is called twice stands twice.
        kind: Its class.
        shape: Of the (first) output.
        mean: Over all entries.
        std: Over all entries, with Bessel's correction.
        zeros: Share of entries that are exactly zero.
        spread: Standard deviation across the batch (dimension 0, corrected), averaged over units: zero where every row
            looks the same, however many units are active. NaN where there are not two rows.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    mean: float
    std: float
    zeros: float
    spread: float


@dataclass(frozen=True)
class Activations:
    """One entry a call of a layer, in the order of the calls."""

    layers: tuple[Activation, ...]

    def __str__(self) -> str:
        rows = [
            (a.name, a.kind, f"{a.mean:+.4f}", f"{a.std:.4f}", f"{100 * a.zeros:.1f} %", f"{a.spread:.4f}")
            for a in self.layers
        ]
        return table("activations", ("layer", "kind", "mean", "std", "zeros", "spread across the batch"), rows)


def activation_statistics(model: nn.Module, inputs: Any) -> Activations:
    """Statistics of every layer's output from one forward without gradients, in the mode that the model is in.

    Read a layer against its neighbours. A share of zeros accuses nobody: half of a healthy ReLU's entries are zero, and
    a dead layer before it leaves that share as it is. The spread across the batch is what dies.
    """
    calls: list[tuple[str, str, tuple[int, ...]]] = []
    statistics: list[Tensor] = []

    def heard(name: str, module: nn.Module, output: Any, leaf: bool) -> None:
        first = next(iter(tensors_in(output)), None)
        if leaf and first is not None:
            calls.append((name, type(module).__name__, tuple(first.shape)))
            statistics.extend(_of(first))

    with keeping(model, None, inputs), torch.no_grad():
        listen(model, heard)
        call_model(model, inputs)
    values = to_host(statistics)
    return Activations(tuple(Activation(*call, *values[4 * i : 4 * i + 4]) for i, call in enumerate(calls)))


def _of(output: Tensor) -> list[Tensor]:
    values = output.detach()
    if not (values.is_floating_point()) or values.dtype in (torch.float16, torch.bfloat16):
        values = values.abs().float() if values.is_complex() else values.float()
    nothing = values.new_tensor(float("nan"))
    spread = values.std(0).mean() if values.dim() and len(values) > 1 and values.numel() else nothing
    std = values.std() if values.numel() > 1 else nothing
    return [values.mean(), std, (values == 0).float().mean(), spread]
