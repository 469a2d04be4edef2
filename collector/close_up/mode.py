"""A function mode that sees every call of torch's from Python, its line, and what history its operands carry.

Inside its own call a mode is off, so a composite (a loss function, attention) is one operation: the one the user wrote.
Threads that the script starts are not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.overrides import TorchFunctionMode

from weaklink.collector.close_up.book import ValueBook, carries_history, operands_of
from weaklink.collector.close_up.numbers import Number
from weaklink.collector.close_up.operations import (
    BROADCASTING,
    CONSTANT,
    COPYING,
    DETACHING,
    ELEMENTWISE,
    RESHAPING,
    name_of,
    writes_in_place,
)
from weaklink.collector.close_up.values import Meeting, Operation, Value
from weaklink.collector.evidence import Site
from weaklink.collector.tensors import digest
from weaklink.collector.watching.context import is_traced, is_transformed
from weaklink.collector.watching.nodes import SITE
from weaklink.collector.watching.switches import checkpoint_site, switch_site

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# Operations of one window between two steps; a step of more is seen up to here, and said to be.
OPERATIONS = 20_000
# Nodes that one composite may have put into the graph: a recurrent layer over a long sequence has some more.
_NODES = 512
# Entries up to which results are asked whether they are finite.
_ENTRIES = 1 << 22
_SWITCH = "_set_grad_enabled"


class CloseUpMode(TorchFunctionMode):
    """Writes down operations while `active`; passes everything through otherwise."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher
        self.book = ValueBook(watcher.parameters)
        self.active = False
        self.operations = 0
        self._switched_off: Site | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == _SWITCH:
            self.guarded(self.switches, bool(args[0]))
            return func(*args, **kwargs)
        if not self.active or self._watcher.paused or self._watcher.tape.phase in ("step", "backward"):
            return func(*args, **kwargs)
        if is_traced() or self.operations >= OPERATIONS:
            return func(*args, **kwargs)
        name = name_of(func)
        # What it takes, before an operation in place changes it.
        operands = self.guarded(self._operands, args, kwargs) or []
        result = func(*args, **kwargs)
        found = self.guarded(self._note, name, operands, args, kwargs, result)
        return result if found is None else found

    def window_over(self) -> None:
        """A step is over: forget how things came about, and count anew."""
        self.operations = 0
        self.book.forget_origins()

    # -- one operation ---------------------------------------------------------------------------------------------

    def guarded(self, function: Callable[..., Any], *args: Any) -> Any:
        """Its answer; None where it failed, which is written down."""
        try:
            return function(*args)
        except Exception as error:
            self._watcher.problem("close-up", error)
            return None

    def switches(self, enabled: bool) -> None:
        """Gradients are about to be switched on or off: remember who switched them off."""
        if enabled:
            self._switched_off = None
        elif torch.is_grad_enabled():
            self._switched_off = switch_site(self._watcher.code)

    def _operands(self, args: Any, kwargs: Any) -> list[Value]:
        found: list[Value] = []
        for thing in operands_of((args, kwargs)):
            if isinstance(thing, Number):
                found += thing.sources
            elif not isinstance(thing, Tensor) or not is_transformed(thing):
                found.append(self.book.of(thing))
        return found

    def _note(self, name: str, operands: list[Value], args: Any, kwargs: Any, result: Any) -> Any:
        if name.endswith("="):
            return None
        changed = args[0] if writes_in_place(name) and args and isinstance(args[0], Tensor) else None
        results = [changed] if changed is not None else _results(result)
        if not results or any(isinstance(thing, Tensor) and is_transformed(thing) for thing in results):
            return None
        if not operands and name in CONSTANT:
            return None  # one of very many, and asked for again where it is used
        site = self._watcher.code.site(f"{name} called")
        if site is None:
            return None
        self.operations += 1
        zeroed = any(isinstance(argument, (int, float)) and argument == 0 for argument in args)
        operation = Operation(name, site, operands, zeroed=zeroed)
        self._note_cut(operation, results)
        answer = None
        for thing in results:
            if isinstance(thing, float):
                if not any(operand.parameters for operand in operands):
                    return None
                value = self.book.result(Number(thing, ()), operation, False)
                value.number = thing
                answer = Number(thing, (value,))
                continue
            value = self.book.result(thing, operation, name in CONSTANT)
            if isinstance(thing, Tensor):
                if value.parameters and not value.history and thing.numel() == 1 and value.floating:
                    value.number = float(thing)
                self._note_nodes(thing, site)
                _note_finite(operation, thing)
                self._note_meeting(operation, value, args)
        return answer

    def _note_cut(self, operation: Operation, results: list[Any]) -> None:
        took = any(operand.history for operand in operation.operands)
        floating = [t for t in results if not isinstance(t, Tensor) or t.is_floating_point()]
        if not took or not floating or any(isinstance(t, Tensor) and carries_history(t) for t in floating):
            return
        if operation.name in DETACHING:
            operation.cut, operation.cut_site = "detach", operation.site
        elif operation.name in COPYING:
            operation.cut, operation.cut_site = "copy", operation.site
        elif not torch.is_grad_enabled():
            checkpoint = checkpoint_site(self._watcher.code) if self._switched_off is None else None
            operation.cut = "no_grad" if checkpoint is None else "checkpoint"
            operation.cut_site = self._switched_off or checkpoint or _around_function(self._watcher) or operation.site

    def _note_nodes(self, tensor: Tensor, site: Site) -> None:
        """Give the nodes that this call put into the graph its line."""
        if not carries_history(tensor):
            return
        queue, left = [tensor.grad_fn], _NODES
        while queue and left:
            node = queue.pop()
            if node is None or "AccumulateGrad" in type(node).__name__:
                continue
            metadata: Any = node.metadata  # a dictionary; the stubs say a function
            if _LINE in metadata:
                continue
            metadata[_LINE] = site
            left -= 1
            queue += [following for following, _ in node.next_functions]

    def _note_meeting(self, operation: Operation, value: Value, args: Any) -> None:
        if operation.name not in ELEMENTWISE and operation.name not in BROADCASTING:
            return
        pair = [(v, t) for v, t in zip(operation.operands, operands_of(args), strict=False) if isinstance(t, Tensor)]
        if len(pair) < 2 or len(operation.operands) < 2:
            return
        (first, one), (second, other) = pair[-2:] if operation.name == "where" else pair[:2]
        rows = max(*first.shape, *second.shape) if first.shape and second.shape else 0
        if {first.shape, second.shape} != {(rows,), (rows, 1)} or rows < 2:
            return
        operation.all_pairs = first.history and second.history
        for output, target, tensor in ((first, second, other), (second, first, one)):
            told = output.history and output.data and target.data and not target.history and not target.parameters
            if told and (operation.name in BROADCASTING or not _spread_out_here(operation, first, second)):
                operation.meeting = Meeting(output, target, digest(tensor) or "")


# Key in a node's metadata, beside the one for softmax.
_LINE = SITE + ".line"


def line_of(node: Any) -> Site | None:
    """The line that put a node into the graph, where the close-up saw it."""
    found = node.metadata.get(_LINE)
    return found if isinstance(found, Site) else None


def _results(result: Any) -> list[Any]:
    if isinstance(result, Tensor) or type(result) is float or type(result).__name__ == "ndarray":
        return [result]
    if isinstance(result, (tuple, list)):
        return [thing for thing in result[:64] if isinstance(thing, Tensor)]
    return []


def _note_finite(operation: Operation, tensor: Tensor) -> None:
    if tensor.is_floating_point() and tensor.layout is torch.strided and 0 < tensor.numel() <= _ENTRIES:
        # No detach here: the watcher's own hook on it would take ours for the user's.
        operation.nan = torch.isnan(tensor).any()
        operation.infinite = torch.isinf(tensor).any()


def _spread_out_here(operation: Operation, *operands: Value) -> bool:
    """Whether the line itself gives an operand its shape, `x[:, None] - y`: then every pair is meant."""
    for operand in operands:
        made = operand.operation
        if made is None or made.name not in RESHAPING or made.site.place != operation.site.place:
            continue
        if any(len(taken.shape) < len(operand.shape) for taken in made.operands[:1]):
            return True
    return False


def _around_function(watcher: Watcher) -> Site | None:
    """The line that called a custom Function, inside of which gradients are off by design."""
    frame: FrameType | None = sys._getframe(1)
    inside = False
    while frame is not None:
        inside |= isinstance(frame.f_locals.get("ctx"), FunctionCtx)
        name = watcher.code.relative(frame.f_code.co_filename)
        if inside and name is not None:
            return Site(file=name, line=frame.f_lineno, what="called without gradients")
        frame = frame.f_back
    return None
