"""Watches whether parameters come back, bit for bit, to what they were before earlier steps.

Something writes into them between two steps (slow weights copied back, a quantizer, a restored snapshot). In every step
one version counter is read; only where it says that somebody wrote, or after a sampled step, are values hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.tensors import digest
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import StepSample
from weaklink.collector.watching.writes import WriteFinder

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# So many parameters, and so many leading entries of each, are hashed; at no more moments than this.
HASHED_PARAMETERS, HASHED_ENTRIES = 16, 16_384
KEPT_MOMENTS = 64
# Once parameters came back, the line is looked for in so many intervals between two steps.
SEARCHED_INTERVALS = 32


@dataclass
class Moment:
    """How an optimizer's parameters stood when step `step` began.

    `loads` counts calls of `load_state_dict` by then; `fresh` says whether the optimizer had no state (any more).
    """

    step: int
    digests: dict[int, str]
    loads: int
    written: bool
    fresh: bool


@dataclass
class ReturnsRecord:
    """Moments by optimizer, and the lines that write into parameters between steps."""

    moments: dict[int, list[Moment]] = field(default_factory=dict)
    writes: list[Site] = field(default_factory=list)


class ReturnsPart(Part):
    """Hashes a few parameters at the beginning of some steps."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.seen = self.tape.record(ReturnsRecord)
        self._versions: dict[int, int] = {}
        self._sampled_before: set[int] = set()
        self._loads = 0
        self._searched = 0
        self._finder = WriteFinder(watcher.code, self.seen.writes, "parameters written between steps")

    def install(self) -> None:
        """Count restored states: they are meant."""
        self.watcher.wrap(nn.Module, "load_state_dict", self._loaded)
        self.watcher.wrap(Optimizer, "load_state_dict", self._loaded)

    @unseen_by_warnings
    def _loaded(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._loads += 1
        return original(*args, **kwargs)

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Hash where a step was sampled before, where somebody wrote, and at the first steps."""
        self._finder.end()
        before, first = self._versions.get(entry.serial), _first(optimizer)
        written = first is not None and before is not None and first._version != before
        moments = self.seen.moments.setdefault(entry.serial, [])
        wanted = self.watcher.sampling or written or entry.serial in self._sampled_before
        self._sampled_before.discard(entry.serial)
        if wanted and len(moments) < KEPT_MOMENTS:
            digests = self._digests(optimizer)
            moments.append(Moment(self.tape.steps + 1, digests, self._loads, written, not optimizer.state))

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """Remember the version, and search for the line once something has come back."""
        if (first := _first(optimizer)) is not None:
            self._versions[entry.serial] = first._version
        if sample is not None:
            self._sampled_before.add(entry.serial)
        moments = self.seen.moments.get(entry.serial, [])
        if self._searched < SEARCHED_INTERVALS and not self.seen.writes and returned(moments):
            self._searched += 1
            held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
            self._finder.begin(lambda tensor: id(tensor) in held)

    def finish(self) -> None:
        """No step follows any more."""
        self._finder.end()

    def _digests(self, optimizer: Optimizer) -> dict[int, str]:
        found: dict[int, str] = {}
        tensors = [t for group in optimizer.param_groups for t in group["params"] if isinstance(t, Tensor)]
        for tensor in [t for t in tensors if t.grad is not None][:HASHED_PARAMETERS]:
            part = tensor.detach().reshape(-1)[:HASHED_ENTRIES]
            if (hashed := digest(part)) is not None:
                found[self.watcher.parameters.entry(tensor).serial] = hashed
        return found


def returned(moments: list[Moment]) -> list[Moment]:
    """Moments at which everything that had moved in between is again what it was at the first one.

    Not where a state was loaded, or the optimizer's own was thrown away as well: that is a new beginning.
    """
    if not moments:
        return []
    start, found, moved = moments[0], [], set[int]()
    keeps_state = any(not moment.fresh for moment in moments)
    for moment in moments[1:]:
        shared = start.digests.keys() & moment.digests.keys()
        away = {serial for serial in shared if moment.digests[serial] != start.digests[serial]}
        moved |= away
        again = moment.loads != start.loads or (moment.fresh and keeps_state)
        if moved and moved <= shared and not away and not again:
            found.append(moment)
    return found


def _first(optimizer: Optimizer) -> Tensor | None:
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            return tensor if isinstance(tensor, Tensor) else None
    return None
