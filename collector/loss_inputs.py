"""The tensors that a loss is computed from besides the model's outputs: targets, weights, masks.

An unmodified script keeps them in variables of its own. They show at the first torch function that takes them between a
model's answer and its backward, and can be exchanged there, in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from weaklink.collector.tensors import tensors_in


class LossInputs(TorchFunctionMode):
    """Calls `take(number, tensor)` once for each tensor from outside, and hands on what it answers in its place.

    Left alone: parameters, and whatever carries a history of its own. Stays on the stack of modes for good once it is
    there, doing nothing while `active` is off: taken off inside a context of the user's, it would take off theirs.
    """

    def __init__(self, take: Callable[[int, Tensor], Tensor]) -> None:
        super().__init__()
        self.active = False
        self._take = take
        self._number = 0
        self._known: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []  # an `id` stands for its tensor as long as that lives

    def enter(self) -> None:
        """Put it on the stack of modes."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def answered(self, output: Any) -> None:
        """A model has answered: its outputs are known, and what is called from now on computes the loss."""
        self._note(output)
        self.active = True

    def forget(self) -> None:
        """Backward has begun."""
        self.active = False
        self._known.clear()
        self._alive.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.active:
            return func(*args, **kwargs)
        result = func(*self._exchanged(args), **self._exchanged(kwargs))
        self._note(result)
        return result

    def _note(self, value: Any) -> None:
        for tensor in tensors_in(value):
            self._known.setdefault(id(tensor), tensor)
            self._alive.append(tensor)

    def _exchanged(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._exchange(value)
        if type(value) in (tuple, list):
            return type(value)(self._exchanged(inner) for inner in value)
        if type(value) is dict:
            return {key: self._exchanged(inner) for key, inner in value.items()}
        return value

    def _exchange(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, nn.Parameter):
            return tensor
        if id(tensor) not in self._known:
            taken = tensor if tensor.requires_grad else self._take(self._number, tensor)
            self._number += not tensor.requires_grad
            self._known[id(tensor)] = taken
            self._alive.append(tensor)
            self._note(taken)
        return self._known[id(tensor)]
