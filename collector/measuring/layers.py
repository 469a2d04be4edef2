"""`activation_statistics`: every layer's output in the script's own forward of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.asked import InstrumentResult
from weaklink.collector.evidence import Value
from weaklink.collector.measuring.calls import Call, ModuleCalls, name_in_run
from weaklink.collector.measuring.part import Waiting
from weaklink.collector.measuring.result import found, missing
from weaklink.collector.probes.loop import to_host
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import is_transformed
from weaklink.collector.watching.tape import BackwardSample

_COLUMNS = ("layer", "kind", "shape", "mean", "std", "zeros", "not finite", "spread over rows")
# Calls that are kept of one window: a loop over a long sequence makes some thousand.
_CALLS = 4000
_NODES = 20_000


@dataclass
class _Layer:
    """One finished call, and its figures, still on the device."""

    call: Call
    kind: str
    shape: list[int]
    figures: list[Tensor]
    rows: bool


class LayersPart(Waiting):
    """Looks at what each call returns, as it returns; answers at the first backward of the step."""

    def begin(self) -> None:
        self._layers: list[_Layer] = []
        self._outputs: list[tuple[Call, list[Tensor]]] = []
        self._calls = ModuleCalls(lambda: self.watcher.paused, ends=self._ended)

    def _ended(self, call: Call, args: Any, kwargs: Any, output: Any) -> None:
        if not torch.is_grad_enabled() or len(self._layers) >= _CALLS or call.root is None:
            return
        first = next(iter(tensors_in(output)), None)
        if first is None or is_transformed(first) or first.is_meta or first.layout is not torch.strided:
            return
        if call.root is call:
            self._outputs.append((call, list(tensors_in(output))))
        if not call.inner:
            with self.watcher.looking_away(), torch.no_grad():
                kind, rows = type(call.module).__name__, first.dim() > 0 and len(first) > 1
                self._layers.append(_Layer(call, kind, list(first.shape), _figures(first), rows))

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        super().backward_begins(losses, sample)
        if self.open:
            self.answer(lambda: self._result(losses))

    def over(self) -> InstrumentResult:
        return self._result([])

    def finish(self) -> None:
        super().finish()
        if self.open:
            self._calls.remove()

    def _result(self, losses: list[Tensor]) -> InstrumentResult:
        reaching = self._reaching(losses)
        layers = [layer for layer in self._layers if any(layer.call.root is call for call in reaching)]
        if not layers:
            reason = "no module that holds parameters was called with gradients before the backward of that step"
            return missing(self.name, self.step, reason)
        values = to_host([figure for layer in layers for figure in layer.figures])
        rows: list[list[Value]] = []
        for number, layer in enumerate(layers):
            mean, std, zeros, bad, spread = values[5 * number : 5 * number + 5]
            rows.append(
                [
                    name_in_run(layer.call, self.watcher),
                    layer.kind,
                    layer.shape,
                    mean,
                    std,
                    zeros,
                    int(bad),
                    spread if layer.rows else None,
                ]
            )
        title = f"outputs in the forward of step {self.step}, in the order of the calls"
        notes = [
            "zeros: share of exact zeros; spread over rows: standard deviation over dimension 0, mean over the rest"
        ]
        if any(hasattr(layer.call.module, "_orig_mod") for layer in layers):
            notes.append("the model is compiled: what happens inside is not seen")
        if len(self._layers) >= _CALLS:
            notes.append(f"only the first {_CALLS} calls were looked at")
        return found(self.name, self.step, title, _COLUMNS, rows, notes)

    def _reaching(self, losses: list[Tensor]) -> list[Call]:
        """The calls of models that a loss goes back to; the last one where the graph tells of none."""
        nodes: set[Any] = set()
        queue: list[Any] = [loss.grad_fn for loss in losses]
        while queue and len(nodes) < _NODES:
            node = queue.pop()
            if node is not None and node not in nodes:
                nodes.add(node)
                queue.extend(following for following, _ in node.next_functions)
        known = [call for call, outputs in self._outputs if any(t.grad_fn in nodes for t in outputs if t.grad_fn)]
        return known or [call for call, _ in self._outputs[-1:]]


def _figures(output: Tensor) -> list[Tensor]:
    """Mean, corrected standard deviation, share of zeros, entries not finite, spread over rows."""
    values = output.detach()
    values = values.abs() if values.is_complex() else values
    values = values.float() if values.dtype != torch.float64 else values
    nothing = values.new_tensor(float("nan"))
    spread = values.std(0).mean() if values.dim() and len(values) > 1 and values.numel() else nothing
    std = values.std() if values.numel() > 1 else nothing
    return [values.mean(), std, (values == 0).float().mean(), (~torch.isfinite(values)).sum().float(), spread]
