"""Watches whether parameters come back, bit for bit, to what they were before earlier steps.

Something writes into them between two steps (slow weights copied back, a quantizer, a restored snapshot). In every step
one version counter is read; only where it says that somebody wrote, or after a sampled step, are values hashed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.tensors import digest
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part, RootCall
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

    `loads` counts calls of `load_state_dict` by then; `fresh` says whether the optimizer had no state (any more);
    `settings` are its groups' (decay, momentum), `rates` their rates where no scheduler sets them; `evaluated` says
    whether the values that the step before had left were evaluated.
    """

    step: int
    digests: dict[int, str]
    loads: int
    written: bool
    fresh: bool
    settings: str = ""
    rates: str = ""
    evaluated: bool = False


@dataclass
class ReturnsRecord:
    """Moments by optimizer, and the lines that write into parameters between steps.

    `scheduled` are optimizers whose rates changed while nobody wrote: the script schedules them by hand.
    """

    moments: dict[int, list[Moment]] = field(default_factory=dict)
    scheduled: set[int] = field(default_factory=set)
    writes: list[Site] = field(default_factory=list)


class ReturnsPart(Part):
    """Hashes a few parameters at the beginning of some steps."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.seen = self.tape.record(ReturnsRecord)
        self._versions: dict[int, int] = {}
        self._rates: dict[int, str] = {}
        self._sampled_before: set[int] = set()
        # Who stepped last, and whether what it left was evaluated since.
        self._last: tuple[int, weakref.ref[Tensor]] | None = None
        self._evaluated: set[int] = set()
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

    def root_called(self, call: RootCall) -> None:
        """Remember an evaluation of what the last step left."""
        if call.with_gradients or self._last is None:
            return
        serial, first = self._last[0], self._last[1]()
        if first is not None and first._version == self._versions.get(serial):
            self._evaluated.add(serial)

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Hash where a step was sampled before, where somebody wrote, and at the first steps."""
        self._finder.end()
        before, first = self._versions.get(entry.serial), _first(optimizer)
        written = first is not None and before is not None and first._version != before
        moments = self.seen.moments.setdefault(entry.serial, [])
        rates = str([_rate(group) for group in optimizer.param_groups])
        if self._rates.get(entry.serial, rates) != rates and not written:
            self.seen.scheduled.add(entry.serial)
        self._rates[entry.serial] = rates
        wanted = self.watcher.sampling or written or entry.serial in self._sampled_before
        self._sampled_before.discard(entry.serial)
        if wanted and len(moments) < KEPT_MOMENTS:
            digests = self._digests(optimizer)
            settings = str([_settings(group) for group in optimizer.param_groups])
            evaluated = entry.serial in self._evaluated
            fresh = not optimizer.state
            moments.append(
                Moment(self.tape.steps + 1, digests, self._loads, written, fresh, settings, rates, evaluated)
            )

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """Remember the version, and search for the line once something has come back."""
        if (first := _first(optimizer)) is not None:
            self._versions[entry.serial] = first._version
            self._last = entry.serial, weakref.ref(first)
        self._evaluated.discard(entry.serial)
        if sample is not None:
            self._sampled_before.add(entry.serial)
        moments = self.seen.moments.get(entry.serial, [])
        back = returned(moments, entry.serial in self.seen.scheduled)
        if self._searched < SEARCHED_INTERVALS and not self.seen.writes and back:
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


def returned(moments: list[Moment], scheduled: bool) -> list[Moment]:
    """Moments at which everything that had moved in between is again what it was at the first one.

    Not where a state was loaded, the optimizer's own was thrown away as well, its settings are others (a sweep over
    rates, unless they are `scheduled` and differ at each step anyway), or what had been reached was evaluated before it
    was given up (a trial): that is a new beginning.
    """
    if not moments:
        return []
    start, found, moved = moments[0], [], set[int]()
    keeps_state = any(not moment.fresh for moment in moments)
    for moment in moments[1:]:
        shared = start.digests.keys() & moment.digests.keys()
        away = {serial for serial in shared if moment.digests[serial] != start.digests[serial]}
        moved |= away
        again = moment.loads != start.loads or (moment.fresh and keeps_state) or moment.evaluated
        again |= moment.settings != start.settings or (moment.rates != start.rates and not scheduled)
        if moved and moved <= shared and not away and not again:
            found.append(moment)
    return found


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "lr")}


def _rate(group: dict[str, Any]) -> Any:
    """None where a scheduler sets it: that is another one in each step."""
    return None if "initial_lr" in group else group.get("lr")


def _first(optimizer: Optimizer) -> Tensor | None:
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            return tensor if isinstance(tensor, Tensor) else None
    return None
