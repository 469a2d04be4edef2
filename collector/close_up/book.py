"""Values by identity of their tensors, and how a new one follows from an operation. Weak references only."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from weaklink.collector.close_up.numbers import Number
from weaklink.collector.close_up.values import Operation, Value
from weaklink.collector.watching.graph import leaves_of
from weaklink.collector.watching.parameters import ParameterBook, is_lazy

_DEPTH = 3


class ValueBook:
    """What is known of every tensor, array and number that the close-up has met and that is still alive."""

    def __init__(self, parameters: ParameterBook) -> None:
        self._parameters = parameters
        self._known: dict[int, tuple[weakref.ref[Any], Value]] = {}
        self._made: list[Value] = []

    @property
    def made(self) -> list[Value]:
        """What operations gave since the last step, in order."""
        return list(self._made)

    def of(self, thing: Any) -> Value:
        """The value of a tensor or array; made now where it came from out of sight."""
        known = self._known.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        value = self._unseen(thing)
        self._put(thing, value)
        return value

    def result(self, thing: Any, operation: Operation, constant: bool) -> Value:
        """The value of what an operation gave: it comes from whatever its operands come from."""
        parameters, data = 0, False
        for operand in operation.operands:
            parameters |= operand.parameters
            data |= operand.data
        tensor = isinstance(thing, Tensor)
        value = Value(
            parameters,
            tensor and carries_history(thing),
            data or not (operation.operands or constant),
            tuple(thing.shape) if hasattr(thing, "shape") else (),
            thing.is_floating_point() if tensor else True,
            operation,
            leaf=tensor and carries_history(thing) and thing.is_leaf,
        )
        self._made.append(value)
        if not isinstance(thing, Number):
            self._put(thing, value)
        return value

    def forget_origins(self) -> None:
        """A step is over: what lives on keeps what it comes from, and lets go of how."""
        for value in self._made:
            value.operation = None
        self._made.clear()
        self._known = {key: entry for key, entry in self._known.items() if entry[0]() is not None}

    def _put(self, thing: Any, value: Value) -> None:
        self._known[id(thing)] = (weakref.ref(thing), value)

    def _unseen(self, thing: Any) -> Value:
        if not isinstance(thing, Tensor):
            return Value(0, False, True, tuple(getattr(thing, "shape", ())), True)
        shape = () if is_lazy(thing) else tuple(thing.shape)
        floating = thing.is_floating_point()
        if not carries_history(thing):
            return Value(0, False, True, shape, floating)
        if thing.is_leaf:
            return Value(1 << self._parameters.entry(thing).serial, True, False, shape, floating, leaf=True)
        # Made by what a function mode does not see, a custom Function: then its graph tells what it comes from.
        parameters = 0
        for serial in leaves_of(thing.grad_fn, self._parameters):
            parameters |= 1 << serial
        return Value(parameters, True, True, shape, floating)


def carries_history(tensor: Tensor) -> bool:
    """Whether it requires a gradient; no for a view that torch refuses to say it of, written to without gradients."""
    try:
        return tensor.requires_grad and (tensor.is_leaf or tensor.grad_fn is not None)
    except RuntimeError:
        return False


def operands_of(arguments: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors, arrays and remembering numbers among the arguments of a call, a few lists deep."""
    if isinstance(arguments, (Tensor, Number)) or type(arguments).__name__ == "ndarray":
        yield arguments
    elif depth < _DEPTH and isinstance(arguments, (list, tuple)):
        for item in arguments[:256]:
            yield from operands_of(item, depth + 1)
    elif depth < _DEPTH and isinstance(arguments, dict):
        for item in list(arguments.values())[:256]:
            yield from operands_of(item, depth + 1)
