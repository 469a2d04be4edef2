"""Where the first NaN or infinity comes from: forward by module, backward by operation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.probes.calls import listen
from weaklink.collector.probes.layout import table
from weaklink.collector.probes.loop import LossFn, forward, keeping, to_host
from weaklink.collector.tensors import dense, nonfinite, tensors_in
from weaklink.collector.watching.sites import UserCode

_FRAME = re.compile(r'File "(.+)", line (\d+)')


@dataclass(frozen=True)
class Stage:
    """One call of a layer (or the loss), and how many entries of its output are NaN or infinite.

    `where` is the line of the user's code that led to the call.
    """

    name: str
    kind: str
    nonfinite: int
    entries: int
    where: str | None


@dataclass(frozen=True)
class Operation:
    """An operation of the backward pass; `where` is the line of the forward that it belongs to."""

    name: str
    where: str | None


@dataclass(frozen=True)
class FirstNonfinite:
    """Where it begins.

    Attributes:
        loss: The loss; None where it is no scalar.
        inputs: Entries of the inputs that are not finite.
        parameters: Names of parameters and buffers that hold such entries.
        stages: Every layer in call order, and the loss: a later layer may hide infinities (a ReLU), or make its own.
        forward: The first stage that is not finite; None where all are.
        backward: The first operation that got finite gradients and passed on others; None where there is none.
    """

    loss: float | None
    inputs: int
    parameters: tuple[str, ...]
    stages: tuple[Stage, ...]
    forward: Stage | None
    backward: Operation | None

    def __str__(self) -> str:
        rows = [(s.name, s.kind, str(s.nonfinite), str(s.entries), s.where or "-") for s in self.stages]
        text = table("forward", ("stage", "kind", "not finite", "entries", "where"), rows)
        first = "every stage is finite" if self.forward is None else f"first not finite: {self.forward.name}"
        back = self.backward
        backward = (
            "no operation makes one"
            if back is None
            else f"first made by {back.name}{f' of {back.where}' if back.where else ''}"
        )
        begun = [f"inputs: {self.inputs} entries not finite"] if self.inputs else []
        held = [f"parameters not finite: {', '.join(self.parameters)}"] if self.parameters else []
        return "\n".join([text, first, f"backward: {backward}", *begun, *held])


def first_nonfinite(model: nn.Module, inputs: Any, targets: Any, loss_fn: LossFn) -> FirstNonfinite:
    """One forward and one backward from the present state, looked at everywhere.

    A layer's output counts, not what reached the loss: the infinities of a linear layer may be zeros behind the ReLU.
    What a module's own `forward` computes beside its layers shows as the module itself, if nothing before it is to
    blame. An error of the model, the loss or of backward passes through; values that are not finite are no error here.
    """
    lines = _Lines()
    calls = _Calls(lines)
    with keeping(model, loss_fn, inputs, targets), torch.enable_grad():
        tensors = {name: t for name, t in [*model.named_parameters(), *model.named_buffers()] if not t.is_meta}
        flags = nonfinite(list(tensors.values()))
        listen(model, calls.heard)
        begun = to_host([_count(t) for t in tensors_in(inputs)])
        # Not for its check, which blames what comes last: in this mode every operation remembers its line.
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            loss = forward(model, inputs, targets, loss_fn)[1]
        calls.add("loss", type(loss_fn).__name__ if isinstance(loss_fn, nn.Module) else _name(loss_fn), loss, None)
        stages, first = calls.read()
        backward = _backward(loss, lines) if loss.requires_grad else None
        value = float(loss.detach()) if loss.numel() == 1 else None
    bad = tuple(name for name, flag in zip(tensors, flags, strict=True) if flag)
    return FirstNonfinite(value, int(sum(begun)), bad, stages, first, backward)


class _Lines:
    """Lines of the user's code below the one that called the instrument: that one made no operation."""

    def __init__(self) -> None:
        self._code = UserCode(Path.cwd())
        self._caller = self._now()

    def _now(self) -> str | None:
        site = self._code.site("called")
        return None if site is None else f"{site.file}:{site.line}"

    def innermost(self) -> str | None:
        """The line now running."""
        line = self._now()
        return None if line == self._caller else line

    def of_stack(self, frames: list[str]) -> str | None:
        """The innermost one of a stack in Python's own printing."""
        for frame in reversed(frames):
            match = _FRAME.search(frame)
            name = self._code.relative(match.group(1)) if match else None
            if match and name is not None:
                line = f"{name}:{match.group(2)}"
                return None if line == self._caller else line
        return None


class _Calls:
    """What each call put out. Counts stay on the device until the forward is over."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines
        self._stages: list[tuple[str, str, int, str | None, bool]] = []
        self._counts: list[Tensor] = []

    def heard(self, name: str, module: nn.Module, output: Any, leaf: bool) -> None:
        self.add(name, type(module).__name__, output, self._lines.innermost(), leaf)

    def add(self, name: str, kind: str, output: Any, where: str | None, leaf: bool = True) -> None:
        tensors = list(tensors_in(output))
        entries = sum(tensor.numel() for tensor in tensors)
        self._stages.append((name, kind, entries, where, leaf))
        counts = [_count(tensor) for tensor in tensors]
        device = counts[0].device if counts else None
        self._counts.append(torch.stack([c.to(device) for c in counts]).sum() if counts else torch.zeros(()))

    def read(self) -> tuple[tuple[Stage, ...], Stage | None]:
        """The leaves in order, and the first stage that is not finite: a leaf, or a module around finite leaves."""
        found: list[Stage] = []
        first = None
        for (name, kind, entries, where, leaf), count in zip(self._stages, to_host(self._counts), strict=True):
            stage = Stage(name, kind, int(count), entries, where)
            begins = first is None and count > 0
            if begins:
                first = stage
            if leaf or begins:
                found.append(stage)
        return tuple(found), first


def _count(tensor: Tensor) -> Tensor:
    return (~torch.isfinite(dense(tensor))).sum()


def _name(function: Any) -> str:
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _backward(loss: Tensor, lines: _Lines) -> Operation | None:
    """Run backward; the first operation, in the order they run, whose incoming gradients are finite and others not."""
    heard: list[Any] = []
    flags: list[Tensor] = []

    def listen_to(node: Any) -> None:
        def hook(outgoing: tuple[Tensor | None, ...], incoming: tuple[Tensor | None, ...]) -> None:
            heard.append(node)
            flags.extend([_any_nonfinite(incoming), _any_nonfinite(outgoing)])

        node.register_hook(hook)

    for node in _nodes(loss):
        listen_to(node)
    loss.backward()  # type: ignore[no-untyped-call]
    values = to_host(flags)
    for position, node in enumerate(heard):
        if not values[2 * position] and values[2 * position + 1]:
            # The key is torch's own affair; without it the operation keeps its name and loses its line.
            return Operation(type(node).__name__, lines.of_stack(node.metadata.get("traceback_") or []))
    return None


def _nodes(loss: Tensor) -> list[Any]:
    """The operations of the graph. Not its leaves: a leaf's node outlives the graph, and a hook on it would stay."""
    seen: set[Any] = set()
    open_ends: list[Any] = [loss.grad_fn]
    while open_ends:
        node = open_ends.pop()
        if node is None or node in seen or type(node).__name__ == "AccumulateGrad":
            continue
        seen.add(node)
        open_ends.extend(following for following, _ in node.next_functions)
    return list(seen)


def _any_nonfinite(gradients: tuple[Tensor | None, ...]) -> Tensor:
    counts = [_count(gradient) for gradient in gradients if gradient is not None]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else torch.zeros(())
