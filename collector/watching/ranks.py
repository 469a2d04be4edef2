"""Several processes: what this rank sees, consumes and holds at sampled steps, to be compared with the other ranks.

Only where a launcher says that there are several. One process can tell a fault of its own here: a `DistributedSampler`
that deals out the same order in every epoch. Everything else takes the other ranks' evidence (`replicas.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from weaklink.collector.checksums import checksums, is_sharded, joint
from weaklink.collector.evidence import Replica, ReplicaStep, Site
from weaklink.collector.rank import Rank, rank_of
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.tape import BackwardSample, StepSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# Of each sampled step so many root calls' inputs are kept; parameters are named up to here.
CALLS_A_STEP = 4
NAMED_PARAMETERS = 2000
# Steps, samplers and epochs that are kept at all: a long run must not collect them without end.
KEPT = 200
NOTHING = "nothing to read"
# In so many epochs the second step is sampled, to see whether it brings the targets of the first epoch's again.
SAMPLED_EPOCHS = 4
# What a script calls to send tensors between ranks.
COLLECTIVES = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all"),
    *("reduce_scatter", "reduce_scatter_tensor", "all_to_all_single", "send", "isend", "recv", "irecv"),
)


@dataclass
class Epoch:
    """One pass over a `DistributedSampler` that shuffles: the epoch it drew its order from, and what came of it.

    `inputs` is the checksum of the first training inputs, `targets` the digests of targets by backward call since the
    pass began, where a step was sampled.
    """

    drawn_from: int
    begun_at: int
    inputs: str = ""
    targets: dict[int, str] = field(default_factory=dict)
    called: set[int] = field(default_factory=set)


@dataclass
class Order:
    """One sampler, and the passes over it that were trained on."""

    site: Site | None
    epochs: list[Epoch] = field(default_factory=list)


@dataclass
class RanksRecord:
    """What one rank wrote down. `rank` is None where the process is alone."""

    rank: Rank | None = None
    replica: Replica | None = None
    orders: list[Order] = field(default_factory=list)


class Ranks(Part):
    """Checksums of inputs, gradients and parameters by sampled step; DDP, samplers and collectives by hooks."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._record = self.tape.record(RanksRecord)
        self._record.rank = rank = rank_of()
        if rank is not None:
            self._record.replica = Replica(rank=rank.rank, world_size=rank.world_size, run=rank.run)
        self._wrapped: list[weakref.ref[nn.Module]] = []
        self._inputs: list[str] = []
        self._targets = ""
        self._gradients: list[str] = []
        self._before = ""
        self._samplers: dict[int, tuple[weakref.ref[Any], Order]] = {}
        self._epoch: tuple[Order, Epoch] | None = None

    def install(self) -> None:
        self.watcher.wrap(DistributedSampler, "__iter__", self._sampler_started)
        if self._record.replica is None:
            return
        self.watcher.wrap(DistributedDataParallel, "__init__", self._built)
        self.watcher.wrap(DistributedDataParallel, "register_comm_hook", self._hooked)
        self.watcher.wrap(DistributedDataParallel, "no_sync", self._unsynchronized)
        self.watcher.wrap(DataLoader, "__init__", self._loader_built)
        for name in COLLECTIVES if distributed.is_available() else ():
            if hasattr(distributed, name):
                self.watcher.wrap(distributed, name, self._exchanged)

    # -- what the script says of itself ----------------------------------------------------------------------------

    def _built(self, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        self.watcher.guarded(self._note_built)(module)
        return result

    def _note_built(self, module: nn.Module) -> None:
        self._wrapped.append(weakref.ref(module))
        self._note_site("wrapped", "DistributedDataParallel built")

    def _hooked(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        assert self._record.replica is not None
        self._record.replica.hooked = True
        return original(*args, **kwargs)

    def _unsynchronized(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._note_site("no_sync", "no_sync entered")
        return original(*args, **kwargs)

    def _loader_built(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._note_site("loader", "DataLoader built")
        return original(*args, **kwargs)

    def _exchanged(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.tape.backwards:
            assert self._record.replica is not None
            self._record.replica.exchanged += sum(tensor.numel() for tensor in tensors_in((args, kwargs)))
        return original(*args, **kwargs)

    def _note_site(self, key: str, what: str) -> None:
        replica = self._record.replica
        if replica is not None and key not in replica.sites and (site := self.watcher.code.site(what)) is not None:
            replica.sites[key] = site

    def _sampler_started(self, original: Callable[..., Any], sampler: Any, *args: Any, **kwargs: Any) -> Any:
        self.watcher.guarded(self._note_sampler)(sampler)
        return original(sampler, *args, **kwargs)

    def _note_sampler(self, sampler: Any) -> None:
        """The order of an epoch is drawn now, from the sampler's seed and its epoch: torch's own code says so."""
        self._epoch = None
        # What is dealt in order is meant to be the same; what a class of the user's makes of the order is not known.
        if not sampler.shuffle or type(sampler).__iter__ is not DistributedSampler.__iter__:
            return
        known = self._samplers.get(id(sampler))
        if known is None or known[0]() is not sampler:
            if len(self._record.orders) >= KEPT:
                return
            order = Order(self.watcher.code.site("the sampler's epoch begins"))
            self._samplers[id(sampler)] = known = (weakref.ref(sampler), order)
            self._record.orders.append(order)
        self._epoch = known[1], Epoch(int(sampler.epoch), self.tape.backwards)
        if len(known[1].epochs) < SAMPLED_EPOCHS:
            self.watcher.sample_next()

    def _trained_on(self, targets: str) -> None:
        """Backward begins on what the sampler under way has dealt."""
        assert self._epoch is not None
        order, epoch = self._epoch
        if len(order.epochs) < KEPT and not (order.epochs and order.epochs[-1] is epoch):
            order.epochs.append(epoch)
        if targets:
            epoch.targets[self.tape.backwards - epoch.begun_at] = targets
        if self._record.replica is not None:
            self._record.replica.sampler = True

    # -- sampled steps ---------------------------------------------------------------------------------------------

    def root_called(self, call: RootCall) -> None:
        first = self._epoch is not None and self._begins_an_epoch(call)
        wanted = call.sampled and self._record.replica is not None and len(self._inputs) < CALLS_A_STEP
        if not call.with_gradients or not (first or wanted):
            return
        seen = joint(checksums([tensor for tensor in tensors_in((call.args, call.kwargs)) if tensor.numel()]))
        if first and self._epoch is not None:
            self._epoch[1].inputs = seen or NOTHING
        if wanted:
            self._inputs.append(seen)
            self._note_site("called", f"{call.root.class_name} called")

    def _begins_an_epoch(self, call: RootCall) -> bool:
        """Whether this call takes the first training batch of the pass under way.

        A call without gradients, or a second one of the same model, before any backward: the pass is an evaluation in
        the middle of an epoch, and the backward that follows belongs to another sampler.
        """
        assert self._epoch is not None
        order, epoch = self._epoch
        if order.epochs and order.epochs[-1] is epoch:
            return False
        if not call.with_gradients or call.root.serial in epoch.called:
            self._epoch = None
            return False
        epoch.called.add(call.root.serial)
        return not epoch.inputs

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        graph = sample.graph if sample is not None else None
        targets = graph.losses[0].target_digest or "" if graph is not None and graph.losses else ""
        if targets and self._record.replica is not None:
            self._targets = targets
        if self._epoch is not None:
            self._trained_on(targets)

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        replica = self._record.replica
        if replica is None or not self.watcher.sampling or len(replica.steps) >= KEPT:
            return
        if not replica.process_group and distributed.is_available() and distributed.is_initialized():
            replica.process_group = distributed.get_world_size()
        self._note_site("stepped", f"{entry.class_name} stepped")
        scope = self._scope(replica)
        replica.names = list(scope)[:NAMED_PARAMETERS]
        replica.trainable = sum(tensor.numel() for tensor in scope.values())
        held = set(entry.held)
        mine = {name: t for name, t in scope.items() if self.watcher.parameters.entry(t).serial in held}
        self._gradients = checksums([tensor.grad if name in mine else None for name, tensor in scope.items()])
        self._before = joint(checksums(list(scope.values())))

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        inputs, self._inputs = self._inputs, []
        targets, self._targets = self._targets, ""
        replica = self._record.replica
        if replica is None or sample is None or len(replica.steps) >= KEPT:
            return
        after = checksums(list(self._scope(replica).values()))
        received = any(checksum != "-" for checksum in self._gradients)
        replica.steps.append(
            ReplicaStep(
                step=sample.step,
                optimizer=entry.serial,
                inputs=inputs,
                targets=targets,
                gradients=joint(self._gradients) if received else "",
                before=self._before,
                after=joint(after),
                gradients_by_parameter=self._gradients[:NAMED_PARAMETERS],
                after_by_parameter=after[:NAMED_PARAMETERS],
            )
        )
        for older in replica.steps[2:-1]:
            older.gradients_by_parameter, older.after_by_parameter = [], []

    def _scope(self, replica: Replica) -> dict[str, Tensor]:
        """The trainable parameters that are to be equal: those of live DDP modules, else those of the root models."""
        wrapped = [module for ref in self._wrapped if (module := ref()) is not None]
        replica.wrapped = _ranks(wrapped) if wrapped else []
        modules = wrapped or [module for _, module in self.watcher.roots.alive()]
        found: dict[str, Tensor] = {}
        for number, module in enumerate(modules):
            left_out: set[str] = getattr(module, "parameters_to_ignore", set())
            for name, tensor in module.named_parameters():
                if not tensor.requires_grad or name in left_out or name.removeprefix("module.") in left_out:
                    continue
                replica.sharded = replica.sharded or is_sharded(tensor)
                found[f"{number}.{name}"] = tensor
            sharding = any(type(part).__name__ == "FullyShardedDataParallel" for part in module.modules())
            replica.sharded = replica.sharded or sharding
        return found


def _ranks(wrapped: list[nn.Module]) -> list[int]:
    """The ranks over which all of these modules are replicated; none where they are not the same for all."""
    found = [getattr(module, "process_group", None) for module in wrapped]
    groups = {tuple(distributed.get_process_group_ranks(group)) for group in found}
    return list(next(iter(groups))) if len(groups) == 1 else []
