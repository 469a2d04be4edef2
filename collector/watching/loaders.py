"""torch's data loaders as the script uses them: made where, iterated where, which rows they drew.

Only torch's own classes are wrapped, and their iterators are the script's own: nothing is drawn, read or kept alive.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, Sampler

from weaklink.collector.evidence import Site
from weaklink.collector.tensors import digest_all, memory_of, shares_memory

# Distinct row numbers that are counted for each loader, passes and batches whose contents are compared.
COUNTED_ROWS = 200_000
COMPARED_PASSES = 8
LEAF_LIMIT = 16

# A place in a batch: keys of mappings, positions in tuples and lists.
Path = tuple[str | int, ...]


@dataclass
class FirstBatch:
    """The first batch of one pass: the row numbers that were drawn for it, and a digest of its tensors.

    `step` is the step that was under way, from 1.
    """

    step: int
    indices: tuple[int, ...] | None
    content: str | None


@dataclass
class WorkerBatch:
    """One of the first batches of a pass that several workers share: its place, its row numbers, its digest."""

    position: int
    indices: tuple[int, ...] | None
    content: str


@dataclass
class LoaderEntry:
    """One data loader, by identity.

    Attributes:
        sampler: Class of the sampler of rows, or of the batch sampler where that is the user's own.
        shuffles: Whether that sampler says that it gives another order each time.
        passes: Iterations begun; `finished` those that came to their end.
        drawn: How often each row number was drawn, up to `COUNTED_ROWS` distinct ones; in this process.
        train_calls, evaluation_calls: Root calls that took their input from its batches, as long as rows were copied.
        input_paths, target_path: Where in its batches stand what a model was given and what a loss was given.
    """

    serial: int
    ref: weakref.ref[Any]
    made: Site | None
    dataset_class: str
    length: int | None
    batch_size: int | None
    sampler: str
    shuffles: bool
    workers: int
    iterated: Site | None = None
    # Where the user's own collate function assigns the targets.
    collated: Site | None = None
    # Where the user's own dataset assigns the inputs of an item, and its targets.
    inputs_read: Site | None = None
    targets_read: Site | None = None
    # Its iterator of the last pass, which outlives a loader that was made in the loop's own line.
    iterator: weakref.ref[Any] | None = None
    passes: int = 0
    finished: int = 0
    batches: int = 0
    drawn: Counter[int] = field(default_factory=Counter)
    draws: int = 0
    counted_all: bool = True
    firsts: list[FirstBatch] = field(default_factory=list)
    shared: list[WorkerBatch] = field(default_factory=list)
    train_calls: int = 0
    evaluation_calls: int = 0
    input_paths: list[Path] = field(default_factory=list)
    target_path: Path | None = None

    def parts(self) -> tuple[Any, Callable[[list[Any]], Any]] | None:
        """The dataset and what puts its items together, of the loader or of its running iterator, if one is alive."""
        loader = self.ref()
        if loader is not None:
            return loader.dataset, loader.collate_fn
        iterator = self.iterator() if self.iterator is not None else None
        return (iterator._dataset, iterator._collate_fn) if iterator is not None else None

    def used_by(self, with_gradients: bool, leaves: list[Leaf]) -> None:
        """A model was called on one of its batches, on these tensors of it as far as that is known."""
        self.train_calls += with_gradients
        self.evaluation_calls += not with_gradients
        self.input_paths += [leaf.path for leaf in leaves if leaf.path not in self.input_paths]

    def loss_took(self, target: Tensor, leaves: list[Leaf]) -> None:
        """A loss kept this target: remember at which place of the batch it stands."""
        if self.target_path is None:
            self.target_path = next((leaf.path for leaf in leaves if leaf.is_seen_in(target)), None)

    @property
    def trains(self) -> bool:
        """Whether a model was trained on its batches."""
        return self.train_calls > 0


@dataclass
class Leaf:
    """One tensor of a batch: where it stands, and what it is known by without holding it."""

    path: Path
    ref: weakref.ref[Tensor]
    memory: int | None
    shape: tuple[int, ...]

    @property
    def alive(self) -> bool:
        return self.ref() is not None

    def is_seen_in(self, tensor: Tensor) -> bool:
        """Whether that tensor is this one, or a view of it."""
        mine = self.ref()
        return mine is tensor or (mine is not None and shares_memory(tensor, self.memory))


@dataclass
class Batch:
    """What a loader yielded last."""

    loader: LoaderEntry
    indices: tuple[int, ...] | None
    leaves: list[Leaf]

    def target(self, inputs: list[Leaf], rows: int) -> Tensor | None:
        """Its tensor that a loss once took; else the last one beside the inputs that has a row for each row."""
        fitting = [leaf for leaf in self.leaves if leaf.shape[:1] == (rows,)]
        places = [leaf.path for leaf in inputs] or self.loader.input_paths or [leaf.path for leaf in fitting[:1]]
        by_loss = [leaf for leaf in fitting if leaf.path == self.loader.target_path]
        beside = by_loss or [leaf for leaf in fitting if leaf.path not in places]
        return beside[-1].ref() if beside else None


class LoaderBook:
    """Every data loader that the script made or iterated."""

    def __init__(self) -> None:
        self.entries: list[LoaderEntry] = []
        self._by_id: dict[int, LoaderEntry] = {}

    def entry(self, loader: DataLoader[Any], made: Site | None = None) -> LoaderEntry:
        """The entry of exactly this loader; made now when it is new."""
        known = self._by_id.get(id(loader))
        if known is not None and known.ref() is loader:
            return known
        sampler = _sampler_of(loader)
        entry = LoaderEntry(
            len(self.entries),
            weakref.ref(loader),
            made,
            type(loader.dataset).__name__,
            _length(loader.dataset),
            loader.batch_size,
            type(sampler).__name__,
            says_it_shuffles(sampler),
            int(loader.num_workers),
        )
        self.entries.append(entry)
        self._by_id[id(loader)] = entry
        return entry


@dataclass
class Pass:
    """One iteration of a loader that is under way. `asked` holds row numbers drawn and not yielded yet.

    `wanted`: whether its batches are still of interest; rows are counted in the first passes at any rate.
    """

    loader: LoaderEntry
    wanted: bool = True
    yielded: int = 0
    asked: deque[tuple[int, ...] | None] = field(default_factory=deque)

    def drew(self, index: Any) -> None:
        """The sampler gave the row numbers of one batch (or one row number, without batches)."""
        if not self.wanted:
            return
        numbers = index if isinstance(index, (list, tuple)) else [index]
        known = set(map(type, numbers)) <= {int}  # an iterable dataset has none
        self.asked.append(tuple(numbers) if known else None)
        if not known or not self.loader.counted_all:
            return
        self.loader.drawn.update(numbers)
        self.loader.draws += len(numbers)
        self.loader.counted_all = len(self.loader.drawn) < COUNTED_ROWS

    def gave(self, data: Any, step: int) -> Batch:
        """A batch was yielded."""
        self.loader.batches += 1
        if not self.wanted:
            self.yielded += 1
            return Batch(self.loader, None, [])
        indices = self.asked.popleft() if self.asked else None
        tensors = list(leaves_in(data))
        self._compare(indices, [tensor for _, tensor in tensors], step)
        self.yielded += 1
        leaves = [Leaf(path, weakref.ref(t), memory_of(t), tuple(t.shape)) for path, t in tensors]
        return Batch(self.loader, indices, leaves)

    def _compare(self, indices: tuple[int, ...] | None, tensors: list[Tensor], step: int) -> None:
        """Digest the batches that are held against each other: each pass's first, and the workers' first ones."""
        if self.loader.passes > COMPARED_PASSES or any(tensor.device.type != "cpu" for tensor in tensors):
            return
        if not self.yielded:
            self.loader.firsts.append(FirstBatch(step, indices, digest_all(tensors)))
        if self.loader.workers > 1 and self.loader.passes == 1 and self.yielded < 2 * self.loader.workers:
            content = digest_all(tensors)
            if content is not None:
                self.loader.shared.append(WorkerBatch(self.yielded, indices, content))


def leaves_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Tensors of a batch and where they stand in it: tuples, lists and mappings, four levels down."""
    if isinstance(value, Tensor):
        yield path, value
    elif len(path) < 4 and isinstance(value, (tuple, list)):
        for position, item in enumerate(value[:LEAF_LIMIT]):
            yield from leaves_in(item, (*path, position))
    elif len(path) < 4 and hasattr(value, "items") and not isinstance(value, type):
        for key, item in list(value.items())[:LEAF_LIMIT]:
            yield from leaves_in(item, (*path, str(key)))


def says_it_shuffles(sampler: Any) -> bool:
    """Whether a sampler declares that it gives another order: torch's random one, or any with `shuffle` set."""
    return isinstance(sampler, RandomSampler) or getattr(sampler, "shuffle", False) is True


def _sampler_of(loader: DataLoader[Any]) -> Any:
    batches: Any = getattr(loader, "batch_sampler", None)
    inner = getattr(batches, "sampler", None)
    if isinstance(inner, Sampler):
        return inner
    return batches if batches is not None else getattr(loader, "sampler", None)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # a stream has none, and the user's own may raise anything
        return None
