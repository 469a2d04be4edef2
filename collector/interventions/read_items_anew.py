"""Every reading of a dataset finds what was stored: the one change that tells items written over from all else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace
from weaklink.collector.looking_data.memory import Memory
from weaklink.collector.looking_data.source import base_of
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class ReadItemsAnew(Intervention):
    """What reading one item writes into the dataset's own tensors and arrays is undone before the next is read.

    The item keeps what it was given: a copy, where it is that memory. Of datasets that loaders are made of; a worker
    writes to copies of its own, and undoes it there.
    """

    name = "read_items_anew"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._thread = threading.local()
        # With their datasets, so that an `id` stands for its own as long as this run lasts.
        self._stored: dict[int, tuple[Any, Memory]] = {}
        self._classes: set[type] = set()
        replace(DataLoader, ("__init__",), self._loader_made)

    @unseen_by_warnings
    def _loader_made(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dataset = argument(args, kwargs, 1, "dataset")
        for one in (dataset, base_of(dataset)):
            kind = type(one)
            if isinstance(one, IterableDataset) or kind in self._classes or kind.__module__ == "builtins":
                continue
            self._classes.add(kind)
            replace(kind, ("__getitem__",), self._read)
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _read(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dataset = args[0]
        if getattr(self._thread, "reading", False):
            return original(*args, **kwargs)
        if id(dataset) not in self._stored:
            self._stored[id(dataset)] = (dataset, Memory(dataset))
        self._thread.reading = True
        try:
            item = original(*args, **kwargs)
        finally:
            self._thread.reading = False
        kept = _copied(item)
        if not self._stored[id(dataset)][1].undo_writes():
            return item
        self.note_changed(self._watcher, type(dataset).__name__, "what reading an item had written was undone")
        return kept


def _copied(item: Any) -> Any:
    """The same nest, its tensors and arrays copied."""
    numpy = sys.modules.get("numpy")
    if isinstance(item, Tensor):
        return item.clone()
    if numpy is not None and type(item) is numpy.ndarray:
        return item.copy()
    if type(item) in (tuple, list):
        return type(item)(_copied(part) for part in item)
    if type(item) is dict:
        return {key: _copied(part) for key, part in item.items()}
    return item
