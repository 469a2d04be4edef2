"""Give every input the target that belongs to it: the one change that tells broken pairing from everything else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from weaklink.collector.interventions.targets import OtherTargets
from weaklink.collector.watching.context import is_traced

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class RealignTargets(OtherTargets):
    """The targets of each loss are those of the declared rule, for the inputs of the last forward of a model."""

    name = "realign_targets"
    how = "targets by the declared rule"

    def attach(self, watcher: Watcher) -> None:
        super().attach(watcher)
        self._inputs: Any = None
        self._thread = threading.local()
        register_module_forward_pre_hook(self._forward_begins)
        # The hook before a forward is not given keyword arguments; the one after it comes too late for a model that
        # computes its own loss.
        register_module_forward_hook(self._forward_ended, with_kwargs=True, always_call=True)

    def other(self, targets: Tensor) -> Tensor | None:
        if self._watcher.rule is None:
            self.report.detail = "no rule was declared"
            return None
        if self._inputs is None:
            return None
        expected = self._watcher.rules.targets_of(self._inputs)
        # As they are compared for the row: (rows, 1) and (rows,) speak of the same targets.
        if expected is None or expected.numel() != targets.numel():
            return None
        return expected.reshape(targets.shape).to(targets)

    def _forward_begins(self, module: nn.Module, args: Any) -> None:
        if self._passes(module):
            return
        depth = getattr(self._thread, "depth", 0)
        self._thread.depth = depth + 1
        if depth == 0 and args:
            self._inputs = args[0] if len(args) == 1 else args

    def _forward_ended(self, module: nn.Module, args: Any, *rest: Any) -> None:
        if self._passes(module):
            return
        self._thread.depth = max(getattr(self._thread, "depth", 1) - 1, 0)
        # (kwargs, output); after an exception torch leaves the kwargs out.
        kwargs = rest[0] if len(rest) == 2 else {}
        if self._thread.depth == 0 and kwargs and not args:
            self._inputs = dict(kwargs)

    def _passes(self, module: nn.Module) -> bool:
        """Whether a call is none of a model of the run: a rule may have one of its own; the watcher pauses for it."""
        return self._watcher.paused or is_traced() or next(module.parameters(), None) is None
