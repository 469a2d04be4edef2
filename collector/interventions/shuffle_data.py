"""Rows in another order in every pass: the one change that tells data that are not mixed from everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class ShuffleData(Intervention):
    """A loader that reads its dataset in order draws a permutation; a distributed sampler draws a new one each pass.

    The permutations come from a generator of their own: the run's random streams do not notice.
    """

    name = "shuffle_data"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        # Samplers that have dealt a pass, and whether the script has said since that another epoch begins.
        self._dealt: dict[int, tuple[DistributedSampler[Any], bool]] = {}
        replace(DataLoader, ("__init__",), self._loader_made)
        replace(DistributedSampler, ("__iter__",), self._pass_begins)
        replace(DistributedSampler, ("set_epoch",), self._told)

    @unseen_by_warnings
    def _loader_made(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dataset = argument(args, kwargs, 1, "dataset")
        shuffle = argument(args, kwargs, 3, "shuffle")
        own = [argument(args, kwargs, place, name) for place, name in ((4, "sampler"), (5, "batch_sampler"))]
        ordered = not shuffle and own == [None, None] and not isinstance(dataset, IterableDataset)
        if not ordered or not self._is_meant() or len(dataset) < 2:
            return original(*args, **kwargs)
        generator = torch.Generator().manual_seed(int(str(self.parameters["seed"])))
        self.note_changed(self._watcher, type(dataset).__name__, f"{len(dataset)} rows drawn in a permutation")
        args, kwargs = with_argument(args, kwargs, 4, "sampler", RandomSampler(dataset, generator=generator))
        return original(*args, **kwargs)

    def _is_meant(self) -> bool:
        wanted = self.parameters["site"]
        site = self._watcher.code.site("loader made")
        return not wanted or (site is not None and f"{site.file}:{site.line}" == wanted)

    @unseen_by_warnings
    def _pass_begins(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Any]:
        sampler = args[0]
        drawn: Iterator[Any] = original(*args, **kwargs)
        if sampler.shuffle:
            known = self._dealt.get(id(sampler))
            if known is not None and not known[1]:
                self.note_changed(self._watcher, type(sampler).__name__, f"a pass drawn by epoch {sampler.epoch}")
            # For the next pass; what the script says of it until then stands.
            sampler.epoch += 1
            self._dealt[id(sampler)] = (sampler, False)
        return drawn

    @unseen_by_warnings
    def _told(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._dealt[id(args[0])] = (args[0], True)
        return original(*args, **kwargs)
