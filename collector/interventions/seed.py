"""Another seed wherever the script sets one: what differs between seeds is luck, and no finding."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import torch
from torch import nn

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.seeds import shift_seeds

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Seed(Intervention):
    """Global seeds are larger by k. Generators of the script's own keep theirs: data are mostly drawn by those."""

    name = "seed"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        shift_seeds(int(str(self.parameters["k"])), self._told)
        self._begun = _drawn()
        watcher.at_first_forward.append(self._compare)

    def _told(self, what: str, how: str) -> None:
        # Not our own seeding, before the script begins.
        if self._watcher.code.site(what) is not None:
            self.note_changed(self._watcher, what, how)

    def _compare(self, module: nn.Module) -> bool:
        """A script that seeds nothing and draws has drawn from the moved streams."""
        if not self.report.applied and _drawn() != self._begun:
            self.note_changed(self._watcher, "streams", "a stream that the script does not seed began elsewhere")
        return True


def _drawn() -> tuple[object, ...]:
    """Where the global streams of Python, numpy and torch stand."""
    numpy = sys.modules.get("numpy")
    return (
        random.getstate(),
        repr(numpy.random.get_state()) if numpy is not None else None,
        bytes(torch.get_rng_state().tolist()),
    )
