"""Gradients stay on where one line of the user's code switches them off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from weaklink.collector.evidence import Site
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import replace
from weaklink.collector.watching.context import is_traced, unseen_by_warnings
from weaklink.collector.watching.switches import switch_site

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class GradEnabled(Intervention):
    """The block, or the decorator, on that line is ineffective where gradients are on when it is entered.

    The line may also be one that calls a module inside a model that was called with gradients: where these are off
    there, they are switched on, for as long as the block lasts that had switched them off.

    Inference mode makes tensors that no gradient can ever pass: throughout the rerun it is what `no_grad` is. The
    numbers are the same.
    """

    name = "grad_enabled"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(torch._C, ("_set_grad_enabled",), self._switch)
        replace(torch.inference_mode, ("__enter__",), self._enter_inference)
        replace(torch.inference_mode, ("__exit__",), self._leave_inference)
        nn.modules.module.register_module_forward_pre_hook(self._module_called)

    @unseen_by_warnings
    def _switch(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        off = bool(args) and not args[0] and torch.is_grad_enabled()
        if off and self._is_wanted(switch_site(self._watcher.code)):
            return None
        return original(*args, **kwargs)

    def _module_called(self, module: nn.Module, args: Any) -> None:
        if torch.is_grad_enabled() or self._watcher.tape.phase != "forward" or self._watcher.paused or is_traced():
            return
        if self._is_wanted(self._watcher.code.site("module called")):
            torch._C._set_grad_enabled(True)

    def _is_wanted(self, site: Site | None) -> bool:
        if site is None or site.place != self.parameters["site"]:
            return False
        self.note_changed(self._watcher, site.place, "gradients stayed on")
        return True

    @unseen_by_warnings
    def _enter_inference(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = args[0]
        context.before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(not context.mode)

    @unseen_by_warnings
    def _leave_inference(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        torch._C._set_grad_enabled(args[0].before)
