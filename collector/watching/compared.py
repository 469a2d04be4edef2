"""Which classes an evaluation compares with, and where: `(predictions == c) & (labels == c)` for each class in turn.

A loss may leave a label out by right. What it leaves out while the evaluation counts it as it counts every other class
is trained by nothing, and asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import is_traced, unseen_by_warnings
from weaklink.collector.watching.loss_calls import LossCalls
from weaklink.collector.watching.part import Part, RootCall

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

PLACES = 64
VALUES = 256
NOTES = 20_000


@dataclass
class ComparedRecord:
    """Numbers that tensors of whole numbers were compared with after an evaluation call, by place.

    `apart`: those that it tells from all others (`labels != 0`, `labels > 0`).
    """

    places: dict[str, tuple[Site, set[int]]] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)

    def with_all_of(self, values: set[int]) -> Site | None:
        """A place that compares with each of these numbers."""
        return next((site for site, compared in self.places.values() if values <= compared), None)


class ComparedPart(Part):
    """Follows `==` with a whole number between an evaluation call and the next call in training."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(ComparedRecord)
        self._evaluating = False
        self._left = NOTES
        self._scored: Callable[[Tensor, Tensor], None] | None = None

    def install(self) -> None:
        for name in ("__eq__", "eq"):
            self.watcher.wrap(Tensor, name, self._watched)
        for name in ("__ne__", "__gt__"):
            self.watcher.wrap(Tensor, name, self._told_apart)
        calls = [part for part in self.watcher.parts if isinstance(part, LossCalls)]
        self._scored = calls[0].answers_compared if calls else None

    def root_called(self, call: RootCall) -> None:
        self._evaluating = not call.with_gradients and self._left > 0

    @unseen_by_warnings
    def _watched(self, original: Callable[..., Any], tensor: Any, other: Any) -> Any:
        if self._evaluating and not is_traced():
            if type(other) is int:
                self.watcher.guarded(self._compared)(tensor, other)
            elif self._scored is not None and isinstance(other, Tensor):
                self.watcher.guarded(self._scored)(tensor, other)
        return original(tensor, other)

    @unseen_by_warnings
    def _told_apart(self, original: Callable[..., Any], tensor: Any, other: Any) -> Any:
        if self._evaluating and type(other) is int and not is_traced():
            self.watcher.guarded(self._apart)(tensor, other)
        return original(tensor, other)

    def _apart(self, tensor: Tensor, value: int) -> None:
        apart = self.record.apart
        if value in apart or len(apart) >= VALUES or not _is_whole(tensor):
            return
        if self.watcher.code.direct_site("class told apart") is not None:
            apart.add(value)

    def _compared(self, tensor: Tensor, value: int) -> None:
        if not _is_whole(tensor):
            return
        self._left -= 1
        self._evaluating = self._left > 0
        site = self.watcher.code.direct_site("class compared")  # not where we compare something ourselves
        if site is None or (site.place not in self.record.places and len(self.record.places) >= PLACES):
            return
        compared = self.record.places.setdefault(site.place, (site, set()))[1]
        if len(compared) < VALUES:
            compared.add(value)


def _is_whole(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.int64, torch.int32, torch.uint8, torch.int16) and tensor.dim() > 0
