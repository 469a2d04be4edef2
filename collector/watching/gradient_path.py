"""One backward of our own with a hook on every node: at which operation a gradient that arrives does not go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.watching.graph import leaves_of
from weaklink.collector.watching.nodes import before, name_of
from weaklink.collector.watching.parameters import ParameterBook
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import Frame, frames_of

NODE_LIMIT = 50_000
STOPS_LIMIT = 512
_LEAF = "torch::autograd::AccumulateGrad"
# Activations and limits: the derivative is zero where the value lies beyond.
_LIMITS = (
    *("Relu", "Threshold", "Clamp", "Hardtanh", "Hardsigmoid", "Hardswish", "Softshrink", "Hardshrink", "Sigmoid"),
    *("Tanh", "Softmax", "LogSigmoid", "Maximum", "Minimum", "Max", "Min", "Round", "Floor", "Ceil", "Sign"),
)
# What products save of their operands, and which of their inputs each is.
_OPERANDS: dict[str, tuple[tuple[str, int], ...]] = {
    "Mul": (("self", 0), ("other", 1)),
    "Mm": (("self", 0), ("mat2", 1)),
    "Bmm": (("self", 0), ("mat2", 1)),
    "Addmm": (("mat1", 1), ("mat2", 2)),
    "Baddbmm": (("batch1", 1), ("batch2", 2)),
    "Mv": (("self", 0), ("vec", 1)),
    "Dot": (("self", 0), ("tensor", 1)),
    "Convolution": (("input", 0), ("weight", 1)),
}


@dataclass
class _Node:
    """What went through one node: whether anything but zeros came in, and what it gave to each of its inputs."""

    arrived: bool = False
    gave: list[bool] = field(default_factory=list)


@dataclass
class Stop:
    """One place where a gradient ends.

    Attributes:
        kind: *limit* (an activation or a clamp beyond its range), *factor* (a constant that is exactly zero),
            *product* (the other operand is exactly zero, and learns itself), *cancelled* (several paths add up to
            zero), *other* (nothing was picked, or what the node did is not known).
        frames: The user's frames that called the operation, innermost first.
        other: For *product*: serial numbers of the leaves that the operand which is zero is made of.
        partner: For *cancelled*: frames of the operation in the same function that made the second path.
        below: Serial numbers of the dead leaves behind it.
    """

    kind: str
    operation: str
    frames: list[dict[str, Any]]
    below: list[int]
    other: list[int] = field(default_factory=list)
    partner: list[dict[str, Any]] = field(default_factory=list)


def examine(losses: list[Tensor], dead: frozenset[int], parameters: ParameterBook, code: UserCode) -> dict[str, Any]:
    """Where the gradients of these leaves end.

    Args:
        losses: What backward is about to be called on; scalars.
        dead: Serial numbers of the parameters whose gradient is zero.
        parameters: Names and objects.
        code: Tells the user's frames.

    Returns:
        `stops`, one a place; `zero`: dead parameters that are zero in every entry; `all`: whether nothing that the
        losses reach received anything but zero.
    """
    roots = [loss.grad_fn for loss in losses if loss.grad_fn is not None and loss.numel() == 1]
    consumers, leaves = _consumers(roots)
    seen: dict[Any, _Node] = {node: _Node() for node in consumers}
    handles = [node.register_hook(_hook(seen[node])) for node in consumers if name_of(node) != _LEAF]
    tensors = [leaf for leaf, _ in leaves]
    kept = [loss for loss in losses if loss.grad_fn is not None and loss.numel() == 1]
    try:
        gradients = torch.autograd.grad(kept, tensors, retain_graph=True, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    serials = [parameters.entry(leaf).serial for leaf in tensors]
    for (_, node), gradient in zip(leaves, gradients, strict=True):
        seen[node].arrived = _any(gradient)
    below: dict[tuple[Any, str], set[int]] = {}
    for (_, node), serial in zip(leaves, serials, strict=True):
        if serial in dead and not seen[node].arrived:
            for stop in _stops(node, consumers, seen):
                below.setdefault(stop, set()).add(serial)
    found = [_describe(node, how, sorted(names), consumers, parameters, code) for (node, how), names in below.items()]
    return {
        "stops": [asdict(stop) for stop in found[:STOPS_LIMIT]],
        "zero": [s for s in sorted(dead) if (value := parameters.entries[s].ref()) is not None and not _any(value)],
        "all": not any(seen[node].arrived for _, node in leaves),
    }


def _consumers(roots: list[Any]) -> tuple[dict[Any, list[tuple[Any, int]]], list[tuple[Tensor, Any]]]:
    """Every node below the roots with (consumer, number of the consumer's input); and the leaves with their nodes."""
    found: dict[Any, list[tuple[Any, int]]] = {root: [] for root in roots}
    leaves: list[tuple[Tensor, Any]] = []
    queue = deque(roots)
    while queue and len(found) < NODE_LIMIT:
        node = queue.popleft()
        if name_of(node) == _LEAF and isinstance(leaf := getattr(node, "variable", None), Tensor):
            leaves.append((leaf, node))
        for number, (following, _) in enumerate(node.next_functions):
            if following is None:
                continue
            if following not in found:
                found[following] = []
                queue.append(following)
            found[following].append((node, number))
    return found, leaves


def _hook(seen: _Node) -> Callable[[Any, Any], None]:
    def note(given: Any, arriving: Any) -> None:
        seen.arrived = any(_any(gradient) for gradient in arriving)
        seen.gave = [_any(gradient) for gradient in given]

    return note


def _any(values: Tensor | None) -> bool:
    return values is not None and bool((values != 0).any())


def _stops(leaf: Any, consumers: dict[Any, list[tuple[Any, int]]], seen: dict[Any, _Node]) -> set[tuple[Any, str]]:
    """The nodes nearest to a leaf, upwards, that something arrives at and that pass nothing on towards it."""
    found: set[tuple[Any, str]] = set()
    queue, visited = deque([leaf]), {leaf}
    while queue:
        node = queue.popleft()
        given = [_gave(seen[consumer], number) for consumer, number in consumers[node]]
        if any(given):
            found.add((node, "cancelled"))
            continue
        for consumer, _ in consumers[node]:
            if seen[consumer].arrived:
                found.add((consumer, "stopped"))
            elif consumer not in visited:
                visited.add(consumer)
                queue.append(consumer)
    return found


def _gave(node: _Node, number: int) -> bool:
    return number < len(node.gave) and node.gave[number]


def _describe(
    node: Any,
    how: str,
    below: list[int],
    consumers: dict[Any, list[tuple[Any, int]]],
    parameters: ParameterBook,
    code: UserCode,
) -> Stop:
    if how == "cancelled":
        meeting, partner = _meeting(node, consumers, code)
        return Stop("cancelled", name_of(meeting), _plain(frames_of(meeting, code)), below, [], _plain(partner))
    name, frames = name_of(node).partition("Backward")[0], _plain(frames_of(node, code))
    constant, made = _zero_operands(node, name)
    if made:
        return Stop("product", name, frames, below, sorted(set().union(*(leaves_of(one, parameters) for one in made))))
    if constant:
        return Stop("factor", name, frames, below)
    return Stop("limit" if name.startswith(_LIMITS) else "other", name, frames, below)


def _zero_operands(node: Any, name: str) -> tuple[bool, list[Any]]:
    """Whether a constant operand of a product is exactly zero; and the nodes that made its operands that are."""
    constant, made = False, []
    for attribute, position in _OPERANDS.get(name, ()):
        try:
            value = getattr(node, f"_saved_{attribute}", None)
        except RuntimeError:  # changed in place since
            continue
        if not isinstance(value, Tensor) or not value.numel() or _any(value):
            continue
        maker = before(node, position)
        constant |= maker is None
        made += [] if maker is None else [maker]
    return constant, made


def _meeting(leaf: Any, consumers: dict[Any, list[tuple[Any, int]]], code: UserCode) -> tuple[Any, list[Frame]]:
    """The operation at which the paths into a node part, and the frames of what made its second operand there."""
    above: dict[Any, int] = {}
    first = next((consumer for consumer, _ in consumers[leaf]), None)
    queue: deque[Any] = deque([] if first is None else [first])
    order: list[Any] = []
    while queue and len(order) < NODE_LIMIT:
        node = queue.popleft()
        if node in above:
            continue
        above[node] = len(order)
        order.append(node)
        queue.extend(consumer for consumer, _ in consumers[node])
    others = [consumer for consumer, _ in consumers[leaf]][1:]
    visited: set[Any] = set()
    queue = deque(others)
    while queue:
        node = queue.popleft()
        if node in visited:
            continue
        visited.add(node)
        if node in above and len([i for i, _ in node.next_functions if i in above or i in visited]) > 1:
            mine = frames_of(node, code)[:1]
            second = frames_of(before(node, 1), code)
            return node, [f for f in second if mine and f.function == mine[0].function and f.file == mine[0].file][:1]
        queue.extend(consumer for consumer, _ in consumers[node])
    return leaf, []


def _plain(frames: list[Frame]) -> list[dict[str, Any]]:
    return [asdict(frame) for frame in frames[:6]]
