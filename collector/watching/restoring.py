"""What is written back into a model: weights that were kept aside, and whether they were kept at all.

`state_dict()` answers with the parameters' own memory. Who keeps it without a copy, and loads it after further steps,
writes every number onto itself. And where names match nothing, `load_state_dict(strict=False)` loads nothing.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import is_traced, unseen_by_warnings
from weaklink.collector.watching.part import Part, RootCall

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# States that are remembered, by weak references, and loads that are written down.
REMEMBERED = 256
KEPT = 16


@dataclass
class Loaded:
    """One `load_state_dict` of the script's own that had no effect.

    Attributes:
        step: Steps that were over.
        backwards: Backward calls that were over.
        site: Where it was loaded.
        tensors: How many tensors were given.
        own: How many tensors with names of their own the model has.
        taken: Where the state was taken: of one that is the model's own memory, or of one with the same names.
        taken_step: The steps over by then.
        root: Serial number of the model, where it is one; known once it was called.
        evaluated: Whether the model was called without gradients afterwards, trained by nobody.
    """

    step: int
    backwards: int
    site: Site | None
    tensors: int
    own: int
    taken: Site | None = None
    taken_step: int = 0
    root: int | None = None
    evaluated: bool = False


@dataclass
class RestoringRecord:
    """Loads of a model's own memory, loads of which no name matched, and loads of a state from before the last steps.

    Such a state is put back, unless it is the model's own memory.
    """

    onto_itself: list[Loaded] = field(default_factory=list)
    put_back: list[Loaded] = field(default_factory=list)
    nothing: list[Loaded] = field(default_factory=list)


@dataclass
class _Taken:
    """One state: its first tensor, which a copied dictionary holds too, its module, a hash of its names, its moment."""

    tensor: weakref.ref[Tensor]
    module: weakref.ref[nn.Module]
    names: int
    step: int
    site: Site | None


class RestoringPart(Part):
    """Remembers states as they are taken, and compares memory as they are loaded."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(RestoringRecord)
        self._taken: deque[_Taken] = deque(maxlen=REMEMBERED)
        self._unmatched: list[tuple[weakref.ref[nn.Module], Loaded]] = []

    def install(self) -> None:
        """Follow the two methods of every module."""
        self.watcher.wrap(nn.Module, "state_dict", self._watched_state)
        self.watcher.wrap(nn.Module, "load_state_dict", self._watched_load)

    @unseen_by_warnings
    def _watched_state(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        # A child is asked by its parent, with a dictionary to fill.
        if not args and kwargs.get("destination") is None and not is_traced():
            self.watcher.guarded(self._note_taken)(module, result)
        return result

    def _note_taken(self, module: nn.Module, state: Any) -> None:
        site = self.watcher.code.direct_site("state taken, not copied")
        first = _first(state)
        if site is not None and first is not None:
            self._taken.append(_Taken(weakref.ref(first), weakref.ref(module), _names(state), self.tape.steps, site))

    @unseen_by_warnings
    def _watched_load(
        self, original: Callable[..., Any], module: nn.Module, state_dict: Any, *args: Any, **kwargs: Any
    ) -> Any:
        earlier = self._earlier(state_dict) if not is_traced() else None
        aliased = earlier if earlier is not None and self._is_own_memory(module, state_dict) else None
        result = original(module, state_dict, *args, **kwargs)
        if not is_traced():
            self.watcher.guarded(self._note_loaded)(module, state_dict, aliased)
            if earlier is not None and aliased is None and earlier.module() is module:
                self.watcher.guarded(self._note_put_back)(state_dict, earlier)
        return result

    def _earlier(self, state: Any) -> _Taken | None:
        """The state's own moment, where steps were taken since."""
        first = _first(state)
        taken = next((each for each in reversed(self._taken) if each.tensor() is first), None)
        return taken if first is not None and taken is not None and taken.step < self.tape.steps else None

    def _note_put_back(self, state: Any, earlier: _Taken) -> None:
        if len(self.record.put_back) < KEPT:
            loaded = Loaded(self.tape.steps, self.tape.backwards, None, len(state), 0)
            loaded.taken, loaded.taken_step = earlier.site, earlier.step
            self.record.put_back.append(loaded)

    def _is_own_memory(self, module: nn.Module, state: Any) -> bool:
        own: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
        given = {name: value for name, value in state.items() if name in own and isinstance(value, Tensor)}
        return bool(given) and all(_is_same(value, own[name]) for name, value in given.items())

    def _note_loaded(self, module: nn.Module, state: Any, aliased: _Taken | None) -> None:
        if not isinstance(state, Mapping) or not state:
            return
        own = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        own |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
        loaded = Loaded(self.tape.steps, self.tape.backwards, None, len(state), len(own))
        if aliased is not None and len(self.record.onto_itself) < KEPT:
            loaded.site = self.watcher.code.site("state loaded")
            loaded.taken, loaded.taken_step = aliased.site, aliased.step
            self.record.onto_itself.append(loaded)
        elif own and not own & set(state) and len(self._unmatched) < KEPT:
            loaded.site = self.watcher.code.site("state loaded, of which no name matches")
            alike = next((each for each in reversed(self._taken) if each.names == _names(state)), None)
            if alike is not None:
                loaded.taken, loaded.taken_step = alike.site, alike.step
            self._unmatched.append((weakref.ref(module), loaded))
            self.record.nothing.append(loaded)

    def root_called(self, call: RootCall) -> None:
        """A model into which nothing was loaded is called."""
        for ref, loaded in self._unmatched:
            if ref() is call.module:
                loaded.root = call.root.serial
                loaded.evaluated = loaded.evaluated or not call.with_gradients


def _first(state: Any) -> Tensor | None:
    """The first floating-point tensor of a state."""
    if not isinstance(state, Mapping):
        return None
    return next((v for v in state.values() if isinstance(v, Tensor) and v.is_floating_point()), None)


def _names(state: Any) -> int:
    return hash(tuple(sorted(str(name) for name in state)))


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one memory."""
    if one.is_meta or other.is_meta or one.layout != torch.strided or not one.numel():
        return False
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
