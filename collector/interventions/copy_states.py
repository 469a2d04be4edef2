"""A state that is a copy: what was taken stays what it was, however long the training goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.watching.context import is_traced, unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class CopyStates(Intervention):
    """Where the user's own line takes a module's `state_dict()`, its tensors are copies instead of the module's memory.

    That changes something once such a state is loaded after the module has moved on. With `keep_vars=True` the
    parameters themselves are asked for, and given.
    """

    name = "copy_states"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        # By copy: the module that it was taken of, and its name there.
        self._copied: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        watcher.wrap(nn.Module, "state_dict", self._take)
        watcher.wrap(nn.Module, "load_state_dict", self._load)

    @unseen_by_warnings
    def _take(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = original(module, *args, **kwargs)
        # A child is asked by its parent, with a dictionary to fill.
        if args or kwargs.get("destination") is not None or kwargs.get("keep_vars") or is_traced():
            return state
        if self._watcher.code.direct_site("state taken") is None:
            return state
        with torch.no_grad():
            for name, value in list(state.items()):
                if isinstance(value, Tensor):
                    state[name] = value.clone()
                    self._copied[state[name]] = (weakref.ref(module), name)
        return state

    @unseen_by_warnings
    def _load(self, original: Callable[..., Any], module: nn.Module, state: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state, Mapping) and self._moved_on(state):
            self.note_changed(self._watcher, type(module).__name__, "an earlier state was loaded as it was when taken")
        return original(module, state, *args, **kwargs)

    def _moved_on(self, state: Mapping[str, Any]) -> bool:
        """Whether the module that this state is a copy of has other values by now."""
        for value in state.values():
            if not isinstance(value, Tensor) or value not in self._copied:
                continue
            ref, name = self._copied[value]
            if (module := ref()) is None:
                continue
            tensor = dict(module.named_parameters(remove_duplicate=False)).get(name)
            if tensor is not None and not torch.equal(tensor.detach(), value):
                return True
        return False
