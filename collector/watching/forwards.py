"""When the run's own model is looked at closely: at an early training step, and whenever an evaluation begins.

What is kept of the run are copies of a few training batches, bounded, and of the trained parameters at the first of
them; the looks themselves are in `collector/looking/`, in a copy of the process.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.evidence import Site
from weaklink.collector.looking.batches import BATCH_BYTES, TrainingBatch, copied, floating
from weaklink.collector.looking.causality import look_at_order
from weaklink.collector.looking.evaluation import Trained, look_at_evaluation
from weaklink.collector.looking.fits import look_at_fits
from weaklink.collector.looking.independence import look_at_rows
from weaklink.collector.looking.objective import find_objective
from weaklink.collector.looking.places import Places
from weaklink.collector.looking.rates import look_at_rates
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.tape import BackwardSample, StepSample

# Training batches that are kept, and how many parameters' bytes.
BATCHES = 8
# Names of the looks at the last evaluation: of the model that is trained, and of one that is not known to be.
EVALUATION = "evaluation"
ANOTHER = "evaluation of another"
PARAMETER_BYTES = 64 * 1024 * 1024
# Calls of one step that are kept, and inputs of one evaluation that are told apart.
CALLS = 8
INPUTS_TOLD_APART = 4096
# A look at a training batch that showed nothing is taken again this often.
TRIES = 3


@dataclass
class ForwardsRecord:
    """What the rows need besides the looks.

    Attributes:
        evaluations: Evaluation passes seen: runs of calls without gradients or in eval mode, with no step between.
        single_passes: Those in which no input was shown twice in eval mode; `most_shown`: how often one was in any.
        call_sites: Where each root was called, by its serial number, and the arguments with "mask" in their name that
            its forward takes and was not given.
        evaluation_site: Where the trained model was last evaluated; `other_site`: where one was of which no training
            batch is known.
        evaluated_roots: Serial numbers of roots that were called in an evaluation; `other_root`: the last one of which
            no training batch is known; `trained_root`: the trained model that has its layout, or is it.
        steps_called: In how many different steps' windows a root was called without gradients, by serial number.
        losses: Of each sampled batch the step, its loss when it was seen, and the best that a constant could do on it.
    """

    evaluations: int = 0
    single_passes: int = 0
    most_shown: int = 0
    call_sites: dict[int, Site] = field(default_factory=dict)
    masks: dict[int, list[str]] = field(default_factory=dict)
    evaluation_site: Site | None = None
    other_site: Site | None = None
    evaluated_roots: set[int] = field(default_factory=set)
    other_root: int | None = None
    trained_root: int | None = None
    steps_called: dict[int, int] = field(default_factory=dict)
    losses: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def learned(self) -> bool:
        """Whether the later half of the sampled batches has a loss below what a constant output could reach on them."""
        later = self.losses[len(self.losses) // 2 :]
        return sum(loss for _, loss, _ in later) < sum(constant for _, _, constant in later)


@dataclass
class _Kept:
    """One call of a root in the window under way: copies of what went in and what came out."""

    root: int
    ref: weakref.ref[nn.Module]
    args: Any
    kwargs: Any
    outputs: list[Tensor]


class Forwards(Part):
    """Keeps training batches, and decides the moments of the looks."""

    def __init__(self, watcher: Any) -> None:
        super().__init__(watcher)
        self._window: list[_Kept] = []
        self._batches: dict[int, deque[TrainingBatch]] = {}
        self._initial: dict[int, dict[str, Tensor] | None] = {}
        self._refs: dict[int, weakref.ref[nn.Module]] = {}
        self._tries: dict[str, int] = {}
        self._pass: tuple[int, int] | None = None
        self._shown: Counter[int] = Counter()
        self._seen: set[int] = set()
        self._fit_asked = False
        self._pending: tuple[weakref.ref[nn.Module], TrainingBatch] | None = None

    @property
    def _record(self) -> ForwardsRecord:
        return self.tape.record(ForwardsRecord)

    @property
    def _places(self) -> Places:
        return Places(self.watcher.code, self.watcher.parameters)

    def first_batches(self) -> tuple[nn.Module, list[TrainingBatch], dict[str, Tensor]] | None:
        """The model that was trained first, the batches kept of it, and its parameters before the first of them."""
        serial = next(iter(self._batches), None)
        model = self._refs[serial]() if serial is not None else None
        initial = self._initial.get(serial) if serial is not None else None
        if serial is None or model is None or initial is None:
            return None
        return model, list(self._batches[serial]), initial

    # -- calls ---------------------------------------------------------------------------------------------------------

    def root_called(self, call: RootCall) -> None:
        """Keep a sampled training call; begin a look at an evaluation."""
        trains = call.with_gradients and call.sampled and len(self._window) < CALLS
        evaluates = not call.with_gradients or not call.module.training
        if not (trains or evaluates) or not self.watcher.looks.allowed or not _is_whole(call.module):
            return
        if trains:
            self._keep(call)
        if evaluates:
            self._evaluated(call)

    def _keep(self, call: RootCall) -> None:
        record = self._record
        if call.root.serial not in record.call_sites:
            site = self.watcher.code.site(f"{call.root.class_name} called")
            if site is not None:
                record.call_sites[call.root.serial] = site
            record.masks[call.root.serial] = _masks_left_out(call)
        args, kwargs = copied(call.args), copied(call.kwargs)
        outputs = [tensor.detach().clone() for tensor in floating(call.output)[:4]]
        size = sum(tensor.numel() * tensor.element_size() for tensor in outputs)
        if args is None or kwargs is None or size > BATCH_BYTES:
            return
        self._window.append(_Kept(call.root.serial, weakref.ref(call.module), args, kwargs, outputs))

    def _evaluated(self, call: RootCall) -> None:
        record, serial = self._record, call.root.serial
        now = (self.tape.steps, self.tape.backwards)
        if now != self._pass:
            self._end_pass()
            self._pass = now
            record.evaluations += 1
            self._seen = set()
        if not call.module.training and len(self._shown) < INPUTS_TOLD_APART:
            self._shown[_glance(call.args, call.kwargs)] += 1
        if serial in self._seen:
            return
        self._seen.add(serial)
        record.steps_called[serial] = record.steps_called.get(serial, 0) + 1
        if not self.tape.backwards:
            return  # before any training there is nothing to compare with
        if 2 * record.steps_called[serial] > self.tape.steps >= CALLS:
            return  # a teacher, a target network, a rollout: part of training
        record.evaluated_roots.add(serial)
        trained, name = self._trained(call), EVALUATION
        if serial in self._batches:
            record.evaluation_site = self.watcher.code.site("evaluated")
        else:
            name, record.other_root = ANOTHER, serial
            record.other_site = self.watcher.code.site("evaluated")
        model, args, kwargs, places = call.module, call.args, call.kwargs, self._places
        self.watcher.looks.hold(name, lambda: look_at_evaluation(model, args, kwargs, trained, places))

    def _end_pass(self) -> None:
        if self._pass is not None and self._shown:
            most = max(self._shown.values())
            self._record.single_passes += most == 1
            self._record.most_shown = max(self._record.most_shown, most)
        self._shown = Counter()

    def _trained(self, call: RootCall) -> Trained | None:
        """The trained model that this one is, or whose layout it has."""
        own = self._batches.get(call.root.serial)
        if own:
            self._record.trained_root = call.root.serial
            return Trained(call.module, list(own), self._initial.get(call.root.serial))
        wanted = [tuple(parameter.shape) for parameter in call.module.parameters()]
        for serial, batches in self._batches.items():
            model = self._refs[serial]()
            if model is not None and [tuple(parameter.shape) for parameter in model.parameters()] == wanted:
                self._record.trained_root = serial
                return Trained(model, list(batches), self._initial.get(serial))
        return None

    # -- backward ------------------------------------------------------------------------------------------------------

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """A sampled step: match its loss to the calls of the window, and keep the batch."""
        if sample is None or not self._window or not self.watcher.looks.allowed:
            return
        readable = sample.graph is not None and sample.graph.saved_tensors_unread is None
        for kept in reversed(self._window):
            model = kept.ref()
            objective = find_objective(losses, kept.outputs) if readable else None
            if model is None or objective is None:
                continue
            batch = TrainingBatch(kept.args, kept.kwargs, objective)
            self._keep_batch(kept.root, model, batch, float(objective.loss(kept.outputs)))
            self._pending = (kept.ref, batch)
            return

    def _keep_batch(self, serial: int, model: nn.Module, batch: TrainingBatch, loss: float) -> None:
        if serial not in self._batches:
            self._batches[serial] = deque(maxlen=BATCHES)
            self._refs[serial] = weakref.ref(model)
            self._initial[serial] = _copies(model)
        self._batches[serial].append(batch)
        assert batch.objective is not None
        self._record.losses.append((self.tape.steps + 1, loss, batch.objective.constant()))

    def _look_at_training(self, model: nn.Module, batch: TrainingBatch) -> None:
        places = self._places
        self._try("rows", lambda: look_at_rows(model, batch, places))
        self._try("order", lambda: look_at_order(model, batch, places))
        if not self._fit_asked:
            self._fit_asked = True
            optimizers = [optimizer for _, optimizer in self.watcher.optimizers.alive()]
            self.watcher.looks.hold("fits", lambda: look_at_fits(model, optimizers, batch, places))
            self.watcher.looks.hold("rates", lambda: look_at_rates(model, optimizers, batch))

    def _try(self, name: str, look: Any) -> None:
        """Take a look, and again in a later sampled step where it showed nothing: an output may start at zero."""
        known = self.tape.looks.get(name)
        tries = self._tries.get(name, 0)
        if (known is not None and known.values is not None) or tries >= TRIES:
            return
        self._tries[name] = tries + 1
        self.watcher.looks.take(name, look)

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """The looks at a training batch, now that no graph waits for the parameters to be as they were."""
        if self._window:
            self._window = []
        pending, self._pending = self._pending, None
        if pending is not None and (model := pending[0]()) is not None:
            self._look_at_training(model, pending[1])

    def finish(self) -> None:
        """A run that learned needs no fits of ours."""
        self._end_pass()
        if self._record.learned:
            for name in ("fits", "rates"):
                self.watcher.looks.forget(name, "the run itself fits its data better than any constant output")


def _is_whole(module: nn.Module) -> bool:
    """Whether a forward of ours can be made: not of a compiled module, not of one that talks to other processes."""
    if hasattr(module, "_orig_mod") or isinstance(module, torch.jit.ScriptModule):
        return False
    return not (torch.distributed.is_available() and torch.distributed.is_initialized())


def _copies(model: nn.Module) -> dict[str, Tensor] | None:
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if size > PARAMETER_BYTES or any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        return None
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _masks_left_out(call: RootCall) -> list[str]:
    """Arguments of the model's forward that have to do with a mask and were not given."""
    code = getattr(type(call.module).forward, "__code__", None)
    if code is None:
        return []
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    given = set(names[: len(call.args)]) | set(call.kwargs)
    values = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    return [name for name in names if "mask" in name and (name not in given or values.get(name) is None)]


def _glance(args: Any, kwargs: Any) -> int:
    """A hash of the first entries of the inputs on the host: whether the same input is shown again."""
    parts: list[Any] = []
    for tensor in _tensors([args, kwargs])[:2]:
        parts += [tuple(tensor.shape), tensor.data_ptr() if tensor.device.type != "cpu" else 0]
        if tensor.device.type == "cpu" and tensor.numel():
            parts.append(tuple(tensor.detach().flatten()[:32].tolist()))
    return hash(tuple(parts))


def _tensors(value: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.layout == torch.strided and not tensor.is_meta]
