"""Hooks around torch's data loaders. Their iterators stay the script's own: only methods of torch's are wrapped."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.loaders import Batch, Leaf, LoaderBook, LoaderEntry, Pass

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# A batch that was yielded and not used yet waits among this many newer ones.
REMEMBERED_BATCHES = 4


class Loading:
    """Follows every loader, and remembers the last batches by weak references.

    Args:
        wanted: Whether the batches of a loader's next pass are still of interest.
    """

    def __init__(self, watcher: Watcher, wanted: Callable[[LoaderEntry], bool]) -> None:
        self.watcher = watcher
        self.wanted = wanted
        self.book = LoaderBook()
        self._passes: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self._batches: deque[Batch] = deque(maxlen=REMEMBERED_BATCHES)
        # Workers are asked for their first batches before the iterator is handed over.
        self._beginning: Pass | None = None
        # Made once: a guard of its own for every batch would cost more than what it guards.
        self._note_begins = watcher.guarded(self._begins)
        self._note_drawn = watcher.guarded(self._drew)
        self._note_given = watcher.guarded(self._gave)

    def install(self) -> None:
        self.watcher.wrap(DataLoader, "__init__", self._watched_init)
        self.watcher.wrap(DataLoader, "__iter__", self._watched_iter)
        self.watcher.wrap(_BaseDataLoaderIter, "__next__", self._watched_next)
        self.watcher.wrap(_BaseDataLoaderIter, "_next_index", self._watched_index)

    def batch_of(self, inputs: list[Tensor]) -> tuple[Batch | None, list[Leaf]]:
        """The batch that these inputs of a model are of, and which of its tensors they are.

        By memory; else, where they were computed from it, the newest batch with as many rows, and no tensor is known.
        """
        for batch in reversed(self._batches):
            found = [leaf for leaf in batch.leaves if any(leaf.is_seen_in(tensor) for tensor in inputs)]
            if found:
                return batch, found
        newest, rows = self._batches[-1] if self._batches else None, tuple(inputs[0].shape[:1])
        alive = newest is not None and any(leaf.shape[:1] == rows and leaf.alive for leaf in newest.leaves)
        return (newest if alive else None), []

    def is_known(self, with_gradients: bool) -> bool:
        """Whether the newest batch's loader is known to train (or to evaluate) a model already."""
        if not self._batches:
            return True
        loader = self._batches[-1].loader
        return bool(loader.train_calls if with_gradients else loader.evaluation_calls)

    @unseen_by_warnings
    def _watched_init(self, original: Callable[..., Any], loader: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(loader, *args, **kwargs)
        self.watcher.guarded(self._made)(loader)
        return result

    def _made(self, loader: Any) -> None:
        self.book.entry(loader, self.watcher.code.site("data loader made"))

    @unseen_by_warnings
    def _watched_iter(self, original: Callable[..., Any], loader: Any) -> Any:
        self._note_begins(loader)
        begun = self._beginning
        try:
            iterator = original(loader)
        finally:
            self._beginning = None
        if begun is not None:
            self.watcher.guarded(self._begun)(begun, iterator)
        return iterator

    def _begins(self, loader: Any) -> None:
        entry = self.book.entry(loader)
        entry.passes += 1
        entry.iterated = entry.iterated or self.watcher.code.site("data loader iterated")
        self._beginning = Pass(entry, self.wanted(entry))

    def _begun(self, begun: Pass, iterator: Any) -> None:
        self._passes[iterator] = begun
        begun.loader.iterator = weakref.ref(iterator)

    @unseen_by_warnings
    def _watched_index(self, original: Callable[..., Any], iterator: Any) -> Any:
        index = original(iterator)
        self._note_drawn(iterator, index)
        return index

    def _drew(self, iterator: Any, index: Any) -> None:
        running = self._beginning or self._passes.get(iterator)
        if running is not None:
            running.drew(index)

    @unseen_by_warnings
    def _watched_next(self, original: Callable[..., Any], iterator: Any) -> Any:
        try:
            data = original(iterator)
        except StopIteration:
            self.watcher.guarded(self._ended)(iterator)
            raise
        self._note_given(iterator, data)
        return data

    def _ended(self, iterator: Any) -> None:
        if (running := self._passes.get(iterator)) is not None:
            running.loader.finished += 1

    def _gave(self, iterator: Any, data: Any) -> None:
        if (running := self._passes.get(iterator)) is not None:
            self._batches.append(running.gave(data, self.watcher.tape.steps + 1))
