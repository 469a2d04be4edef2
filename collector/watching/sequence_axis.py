"""Along which dimension recurrent layers and attention run: the steps of an example, or the examples of a batch.

Torch's own have the steps first and the batch second unless they are told `batch_first=True`. Given (rows, steps,
features) they run over the rows: no shape is wrong, and each example hears its neighbours instead of itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from weaklink.collector.evidence import Site
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import is_traced, is_transformed, unseen_by_warnings
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.tape import BackwardSample
from weaklink.collector.watching.targets import target_of

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

CALLS = 64
BATCHES = 32


@dataclass
class AxisRecord:
    """What was seen in sampled training steps.

    Attributes:
        over_rows: Batches in which every such layer ran along the rows of the targets; `rows`, `steps`: of the last.
        otherwise: Batches in which one did not.
        kind: The layer's class.
        made: Where it was made.
    """

    over_rows: int = 0
    otherwise: int = 0
    rows: int = 0
    steps: int = 0
    kind: str = ""
    made: Site | None = None


@dataclass
class _Called:
    """One call of a layer: the lengths of its two leading dimensions, the one that it runs along first."""

    kind: str
    along: int
    beside: int
    made: Site | None


@dataclass
class _Books:
    """Where layers were made: each by itself, and by size for those that were copied since."""

    each: weakref.WeakKeyDictionary[nn.Module, Site] = field(default_factory=weakref.WeakKeyDictionary)
    alike: dict[tuple[str, int], Site] = field(default_factory=dict)


class SequenceAxisPart(Part):
    """Follows torch's recurrent layers and its attention in sampled training calls."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(AxisRecord)
        self._made = _Books()
        self._calls: list[_Called] = []
        self._waiting: tuple[int, list[_Called]] | None = None

    def install(self) -> None:
        """Wrap the layers' constructors and forwards."""
        for layer in (nn.RNNBase, nn.MultiheadAttention):
            self.watcher.wrap(layer, "__init__", self._watched_init)
        for layer in (nn.RNN, nn.LSTM, nn.GRU, nn.MultiheadAttention):
            self.watcher.wrap(layer, "forward", self._watched_forward)

    @unseen_by_warnings
    def _watched_init(self, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        self.watcher.guarded(self._note_made)(module)
        return result

    def _note_made(self, module: nn.Module) -> None:
        site = self.watcher.code.site(f"{type(module).__name__} made")
        if site is not None:
            self._made.each[module] = site
            self._made.alike.setdefault(_like(module), site)

    @unseen_by_warnings
    def _watched_forward(self, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        if self.watcher.sampling and not is_traced() and len(self._calls) < CALLS:
            self.watcher.guarded(self._note_called)(module, args, kwargs)
        return original(module, *args, **kwargs)

    def _note_called(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = args[0] if args else kwargs.get("input", kwargs.get("query"))
        # Packed sequences know their steps; two dimensions are one example.
        if not isinstance(given, Tensor) or given.dim() != 3 or is_transformed(given):
            return
        first, second = given.shape[:2]
        along, beside = (second, first) if module.batch_first else (first, second)
        made = self._made.each.get(module) or self._made.alike.get(_like(module))
        self._calls.append(_Called(type(module).__name__, along, beside, made))

    def root_called(self, call: RootCall) -> None:
        """The calls since the last root call were this one's."""
        calls, self._calls = self._calls, []
        first = next((tensor for tensor in tensors_in((call.args, call.kwargs)) if tensor.dim()), None)
        # An autoencoder's second network is called after the first: one that has such layers is waited with.
        if call.with_gradients and call.sampled and calls and first is not None:
            self._waiting = (len(first), calls)

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """The targets say what a row is: one number or one class for each."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or sample is None or not losses or not self.watcher.saved_tensors_readable:
            return
        rows, calls = waiting
        target = target_of(losses[0])
        one_each = target is not None and (target.dim() == 1 or (target.dim() == 2 and target.shape[1] == 1))
        if target is None or not one_each or len(target) != rows or rows < 2:
            return
        if all(called.along == rows and 1 < called.beside != rows for called in calls):
            record, called = self.record, calls[0]
            record.over_rows += 1
            record.rows, record.steps, record.kind, record.made = rows, called.beside, called.kind, called.made
        else:
            self.record.otherwise += 1


def _like(module: Any) -> tuple[str, int]:
    return type(module).__name__, int(getattr(module, "hidden_size", 0) or getattr(module, "embed_dim", 0))
