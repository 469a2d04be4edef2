"""One module object that stands several times in one container: `nn.ModuleList([layer] * 4)` makes one layer, not four.

By identity. Whether the places were meant to differ shows in what they are called with: a look calls the model once
more and compares, since places that share weights and receive the same input can only repeat each other.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.parameters import is_lazy
from weaklink.collector.watching.part import Part, RootCall

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

LOOK = "repeated modules"
ROOTS_LIMIT = 8


@dataclass
class Repeated:
    """One module in several places of one container. `parameter` is the serial number of one of its parameters."""

    container: str
    kind: str
    times: int
    parameter: int


@dataclass
class RepeatedModules:
    """All of them, by the order in which their models were called.

    `separate`: containers of alike modules, each of them an object of its own.
    """

    found: list[Repeated] = field(default_factory=list)
    separate: int = 0


class RepeatReader(Part):
    """Reads the containers of each model when it is called for the first time."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._seen: list[weakref.ref[nn.Module]] = []

    def root_called(self, call: RootCall) -> None:
        """Once a model: its containers, and a look where one repeats itself."""
        if not call.with_gradients or len(self._seen) >= ROOTS_LIMIT:
            return
        if any(known() is call.module for known in self._seen):
            return
        self._seen.append(weakref.ref(call.module))
        repeated = list(_repeated(call.module))
        record = self.tape.record(RepeatedModules)
        record.separate += _separate(call.module)
        for path, container, module, times in repeated:
            parameter = self.watcher.parameters.entry(next(module.parameters()))
            record.found.append(Repeated(path, type(container).__name__, times, parameter.serial))
        if repeated:
            serials = [one.parameter for one in record.found[-len(repeated) :]]
            modules = {serial: one[2] for serial, one in zip(serials, repeated, strict=True)}
            self.watcher.looks.take(LOOK, _look(call, modules))


def _repeated(root: nn.Module) -> list[tuple[str, nn.Module, nn.Module, int]]:
    """Containers of torch's own kinds that hold a module with trainable parameters more than once."""
    found: list[tuple[str, nn.Module, nn.Module, int]] = []
    for path, container in root.named_modules():
        if not isinstance(container, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
            continue
        children = [child for child in container._modules.values() if child is not None]
        by_id = {id(child): child for child in children}
        for identity, times in Counter(map(id, children)).items():
            if times > 1 and any(p.requires_grad for p in by_id[identity].parameters()):
                found.append((path, container, by_id[identity], times))
    return found


def _separate(root: nn.Module) -> int:
    """Lists of trainable modules of one kind and of equal shapes: what a list that repeats one of them might be."""
    count = 0
    for container in root.modules():
        if isinstance(container, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
            children = {id(child): child for child in container._modules.values() if child is not None}
            kinds = [
                (type(child), tuple(None if is_lazy(p) else tuple(p.shape) for p in child.parameters()))
                for child in children.values()
                if any(p.requires_grad and not is_lazy(p) for p in child.parameters())
            ]
            count += len(kinds) > len(set(kinds))
    return count


def _look(call: RootCall, modules: dict[int, nn.Module]) -> Callable[[], dict[str, Any]]:
    """Call the model again: how often each module receives an input that it received before."""

    def look() -> dict[str, Any]:
        inputs: dict[int, list[list[Tensor]]] = {serial: [] for serial in modules}
        handles = [
            module.register_forward_pre_hook(_note(inputs[serial]), with_kwargs=True)
            for serial, module in modules.items()
        ]
        try:
            with torch.no_grad():
                call.module(*call.args, **call.kwargs)
        finally:
            for handle in handles:
                handle.remove()
        return {str(serial): {"calls": len(seen), "again": _again(seen)} for serial, seen in inputs.items()}

    return look


def _note(seen: list[list[Tensor]]) -> Callable[[nn.Module, Any, Any], None]:
    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.append([tensor.detach().clone() for tensor in tensors_in((args, kwargs))])

    return note


def _again(seen: list[list[Tensor]]) -> int:
    """How many calls had bit for bit the inputs of an earlier one."""
    return sum(any(_same(one, earlier) for earlier in seen[:index]) for index, one in enumerate(seen) if one)


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
