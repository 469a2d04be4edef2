"""One step written down so that it can be computed again: calls of models, and torch's functions between them.

What depends on a model or on a trained tensor is written down, call by call, with what it was given; everything else
(batches, masks, numbers) is held as it was. Computed again from other weights, the same calls give the script's own
loss, whatever it is made of: torch's losses, sums by hand, several models, a model that returns its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from weaklink.collector.close_up.operations import name_of, writes_in_place
from weaklink.collector.measuring.calls import Call, ModuleCalls
from weaklink.collector.random_state import keep_global_streams
from weaklink.collector.tensors import mapped, tensors_in
from weaklink.collector.watching.context import is_traced

# Calls of one step that are kept; a script with more computes its loss in some loop that is not worth repeating.
ENTRIES = 20_000
_DEVICES = ("cpu", "cuda")


@dataclass
class Entry:
    """One call: of a model where `streams` is there (it puts the random streams back), else of a torch function."""

    function: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    result: Any
    with_gradients: bool
    autocast: list[tuple[str, torch.dtype]]
    streams: Callable[[], None] | None = None


class Recorder(TorchFunctionMode):
    """Writes down while `active`.

    Args:
        paused: Whether calls are none of the script's now.
        settles: Told before a model is called, with gradients.
    """

    def __init__(self, paused: Callable[[], bool], settles: Callable[[], None]) -> None:
        super().__init__()
        self.active = False
        self.entries: list[Entry] = []
        self.too_many = False
        self._made: set[int] = set()
        self._paused, self._settles = paused, settles
        self._calls = ModuleCalls(paused, self._model_called, self._model_answered)
        self._pushed = False

    def start(self) -> None:
        """Over everything from now on."""
        self.active = self._pushed = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Leave, where no mode of the script's own lies above."""
        self.active = False
        self._calls.remove()
        if self._pushed and torch.overrides._get_current_function_mode() is self:  # type: ignore[no-untyped-call]
            self.__exit__(None, None, None)
        self._pushed = False

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor was made by what is written down."""
        return id(tensor) in self._made

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.active and not self._calls.inside and not self._paused() and not is_traced():
            given = list(tensors_in([args, kwargs]))
            if any(self.knows(tensor) or _is_trained(tensor) for tensor in given):
                self._add(Entry(func, args, kwargs, result, torch.is_grad_enabled(), _autocast()))
        return result

    def _model_called(self, call: Call) -> None:
        if self.active and torch.is_grad_enabled():  # what a teacher answers, or an evaluation, is held as it is
            self._settles()
            call.kept = keep_global_streams(mps=False)

    def _model_answered(self, call: Call, args: Any, kwargs: Any, output: Any) -> None:
        if self.active and call.root is call and call.kept is not None:
            entry = Entry(call.module, args, kwargs, output, torch.is_grad_enabled(), _autocast(), call.kept)
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        made = [tensor for tensor in tensors_in(entry.result) if not _is_trained(tensor)]
        if isinstance(entry.result, nn.Module):
            return
        if len(self.entries) >= ENTRIES:
            self.too_many = True
            return
        self.entries.append(entry)
        self._made |= {id(tensor) for tensor in made}  # alive as long as the entry is


class Replay:
    """The calls that some losses were made by, to be made again.

    Args:
        recorder: What was written down.
        losses: Numbers that were made by it; their sum is the loss.

    Attributes:
        cut: Whether something that had a history has none when it is made again: the backward is one's own there.
    """

    def __init__(self, recorder: Recorder, losses: Sequence[Tensor]) -> None:
        self.cut = False
        self._losses, self._knows = list(losses), recorder.knows
        self.entries = needed(recorder, losses)
        models = [entry.function for entry in self.entries if isinstance(entry.function, nn.Module)]
        self.models = list({id(model): model for model in models}.values())

    @property
    def began_before(self) -> bool:
        """Whether it takes something that has a history of its own: of that nothing was written down."""
        return any(tensor.grad_fn is not None for tensor in self._from_outside())

    def _from_outside(self) -> list[Tensor]:
        return [t for entry in self.entries for t in tensors_in([entry.args, entry.kwargs]) if not self._knows(t)]

    def trained(self, optimizers: Sequence[Optimizer]) -> list[Tensor]:
        """Every tensor that requires a gradient: those of the models, and those that were used by themselves.

        What a model was given is trained where it is a parameter, or one of `optimizers` holds it; else it is a batch
        that requires a gradient for the sake of its own derivative.
        """
        held = {id(t) for one in optimizers for group in one.param_groups for t in group["params"]}
        calls = [entry for entry in self.entries if entry.streams is not None]
        inputs = {id(t) for call in calls for t in tensors_in([call.args, call.kwargs])} - held
        given = [t for t in self._from_outside() if isinstance(t, nn.Parameter) or id(t) not in inputs]
        own = [parameter for model in self.models for parameter in model.parameters()]
        return list({id(tensor): tensor for tensor in [*own, *given] if _is_trained(tensor)}.values())

    def loss(self, streams: bool = False) -> Tensor:
        """The sum of the losses, computed again with a graph.

        Args:
            streams: Draw the random numbers that the script drew, as far as models draw them.
        """
        made: dict[int, Tensor] = {}

        def now(tensor: Tensor) -> Tensor:
            return made.get(id(tensor), tensor)

        def copied(tensor: Tensor) -> Tensor:  # a model may change its inputs in place
            known = made.get(id(tensor))
            return known if known is not None else tensor if _is_trained(tensor) else tensor.detach().clone()

        self.cut = False
        for entry in self.entries:
            if entry.streams is not None and streams:
                entry.streams()
            args, kwargs = (mapped(given, copied if entry.streams else now) for given in (entry.args, entry.kwargs))
            with ExitStack() as stack:
                stack.enter_context(torch.set_grad_enabled(entry.with_gradients))
                for device, kind in entry.autocast:
                    stack.enter_context(torch.autocast(device, dtype=kind))
                result = entry.function(*args, **kwargs)
            for before, after in zip(tensors_in(entry.result), tensors_in(result), strict=False):
                made[id(before)] = after
                self.cut |= before.grad_fn is not None and not after.requires_grad
        total = made[id(self._losses[0])]
        for loss in self._losses[1:]:
            total = total + made[id(loss)]
        return total


def needed(recorder: Recorder, losses: Sequence[Tensor]) -> list[Entry]:
    """The entries from which the losses come, in their order."""
    wanted = {id(loss) for loss in losses}
    found: list[Entry] = []
    for entry in reversed(recorder.entries):
        makes = any(id(tensor) in wanted for tensor in tensors_in(entry.result))
        given = list(tensors_in([entry.args, entry.kwargs]))
        changes = (
            entry.streams is None and writes_in_place(name_of(entry.function)) and given and id(given[0]) in wanted
        )
        if makes or changes:
            found.append(entry)
            wanted |= {id(tensor) for tensor in given if recorder.knows(tensor)}
    return found[::-1]


def _is_trained(tensor: Tensor) -> bool:
    return tensor.is_leaf and tensor.requires_grad


def _autocast() -> list[tuple[str, torch.dtype]]:
    return [(device, torch.get_autocast_dtype(device)) for device in _DEVICES if torch.is_autocast_enabled(device)]
