"""The operation that makes the first NaN or infinity, forward and backward, with its line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.close_up.mode import line_of
from weaklink.collector.close_up.values import Operation, Value
from weaklink.collector.evidence import Site
from weaklink.collector.watching.nodes import name_of

_NODES = 20_000


def forward_origin(loss: Value) -> Operation | None:
    """From a loss that is not finite back to the operation that took finite values and gave another.

    A NaN is followed before an infinity, which a mask may hold by right.
    """
    value, seen = loss, {id(loss)}
    while True:
        made = value.operation
        if made is None:
            return None
        before = [operand for operand in made.operands if id(operand) not in seen and operand.operation is not None]
        marked = [v for v in before if _flag(v, "nan")]
        if not marked and not _flag(value, "nan"):
            marked = [v for v in before if _flag(v, "infinite")]
        if not marked:
            return made
        seen.add(id(marked[0]))
        value = marked[0]


def unfinished_origin(made: Sequence[Value]) -> Operation | None:
    """The same of a step that ended before its backward: from the last of its values that hold a NaN, or else infinity.

    Args:
        made: What the step computed, in order; values without a history are none of its loss.
    """
    for kind in ("nan", "infinite"):
        broken = [value for value in made if value.history and _flag(value, kind)]
        if broken:
            return forward_origin(broken[-1])
    return None


def _flag(value: Value, kind: str) -> bool:
    found = getattr(value.operation, kind) if value.operation is not None else None
    return bool(found) if isinstance(found, Tensor) else False


class BackwardListener:
    """Hooks on the nodes of one graph: which of them first took finite gradients and passed on others."""

    def __init__(self) -> None:
        self._heard: list[tuple[str, Site | None]] = []
        self._flags: list[Tensor] = []

    def listen(self, loss: Tensor) -> None:
        """Hook every operation of the graph. Not its leaves: their nodes outlive it."""
        queue, seen = [loss.grad_fn], {loss.grad_fn}
        while queue and len(seen) < _NODES:
            node = queue.pop()
            if node is None or "AccumulateGrad" in name_of(node):
                continue
            node.register_hook(self._hook(name_of(node), line_of(node)))
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    queue.append(following)

    def _hook(self, name: str, site: Site | None) -> Callable[..., None]:
        def hook(outgoing: tuple[Tensor | None, ...], incoming: tuple[Tensor | None, ...]) -> None:
            self._heard.append((name, site))
            self._flags += [_broken(incoming), _broken(outgoing)]

        return hook

    def origin(self) -> tuple[str, Site | None] | None:
        """The first operation, in the order in which they ran."""
        flags = [bool(flag) for flag in self._flags]
        for position, heard in enumerate(self._heard):
            if not flags[2 * position] and flags[2 * position + 1]:
                return heard
        return None


def _broken(gradients: tuple[Any, ...]) -> Tensor:
    kept = [g.coalesce().values() if g.is_sparse else g for g in gradients if g is not None and g.is_floating_point()]
    flags = [(~torch.isfinite(gradient)).any() for gradient in kept]
    return torch.stack([flag.to(flags[0].device) for flag in flags]).any() if flags else torch.tensor(False)
