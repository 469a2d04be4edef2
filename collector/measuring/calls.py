"""The calls of modules in the script's own forward, from the outermost one that holds parameters inwards.

A module without any parameter that the script calls itself (a loss, an activation) is no model: what it does is the
script's own arithmetic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules import module as module_hooks

from weaklink.collector.watching.context import is_traced

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


@dataclass
class Call:
    """One call under way.

    Attributes:
        module: Called now.
        name: Its name in the model, by its first registration; the class for the model itself.
        root: The outermost call that holds parameters; itself for a model, None outside of any.
        inner: How many modules were called inside.
        kept: For whoever listens: what it noted when the model was called.
    """

    module: nn.Module
    name: str
    root: Call | None
    inner: int = 0
    kept: Any = None
    names: dict[int, str] = field(default_factory=dict)


def name_in_run(call: Call, watcher: Watcher) -> str:
    """The module's name as the rows of the chain spell it: where there are several models, with the model's own."""
    root = call.root or call
    entry = watcher.roots.entry(root.module)
    prefix = watcher.roots.prefixes().get(entry.serial, "") if entry is not None else ""
    return f"{prefix}{call.name}" if call is not root else prefix.rstrip(".") or call.name


class ModuleCalls:
    """Hooks on every module of the process, in the thread that made this.

    Args:
        paused: Whether calls are none of the script's now.
        begins: Told a model's call before it runs.
        ends: Told each call inside a model, and the model's own, with arguments and output.
    """

    def __init__(
        self,
        paused: Callable[[], bool],
        begins: Callable[[Call], None] | None = None,
        ends: Callable[[Call, Any, Any, Any], None] | None = None,
    ) -> None:
        self._paused, self._begins, self._ends = paused, begins, ends
        self._thread = threading.get_ident()
        self._stack: list[Call] = []
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._called),
            module_hooks.register_module_forward_hook(self._returned, with_kwargs=True, always_call=True),
        ]

    @property
    def inside(self) -> bool:
        """Whether a model is being called."""
        return any(call.root is not None for call in self._stack)

    def remove(self) -> None:
        """Take the hooks away."""
        while self._handles:
            self._handles.pop().remove()

    def _ours(self) -> bool:
        return threading.get_ident() == self._thread and not is_traced() and not self._paused()

    def _called(self, module: nn.Module, args: Any) -> None:
        if not self._ours():
            return
        outer = self._stack[-1] if self._stack else None
        root = outer.root if outer is not None else None
        if outer is not None:
            outer.inner += 1
        if root is not None:
            self._stack.append(Call(module, root.names.get(id(module), type(module).__name__), root))
            return
        call = Call(module, type(module).__name__, None)
        self._stack.append(call)
        if next(module.parameters(), None) is not None:
            call.root = call
            call.names = {id(inner): name or call.name for name, inner in module.named_modules()}
            if self._begins is not None:
                self._begins(call)

    def _returned(self, module: nn.Module, args: Any, *rest: Any) -> None:
        # (kwargs, output); after an exception torch leaves the kwargs out.
        if not self._ours() or not self._stack or self._stack[-1].module is not module:
            return
        call = self._stack.pop()
        if self._ends is not None and call.root is not None and len(rest) == 2 and rest[1] is not None:
            self._ends(call, args, *rest)
