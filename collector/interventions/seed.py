"""Another seed wherever the script sets one: what differs between seeds is luck, and no finding."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

class Seed(Intervention):
    """Global seeds are shifted by k. Generators of the script's own keep theirs: data are mostly drawn by those."""

    name = "seed"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(torch, ("manual_seed",), lambda *call: self._seeded("seed", "torch.manual_seed", *call))
        replace(random, ("seed",), lambda *call: self._seeded("a", "random.seed", *call))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            replace(numpy.random, ("seed",), lambda *call: self._seeded("seed", "numpy.random.seed", *call))

    @unseen_by_warnings
    def _seeded(
        self, word: str, what: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        given = argument(args, kwargs, 0, word)
        # Not ours, before the script begins; nor the workers', which seed themselves from the shifted stream.
        theirs = self._watcher.code.site(what) is None or torch.utils.data.get_worker_info() is not None
        if theirs or not isinstance(given, int) or isinstance(given, bool):
            return original(*args, **kwargs)
        other = given + int(str(self.parameters["k"]))
        if what == "numpy.random.seed":
            other %= 2**32
        self.note_changed(self._watcher, what, f"seed {given} -> {other}")
        args, kwargs = with_argument(args, kwargs, 0, word, other)
        return original(*args, **kwargs)
