"""The watcher: passive hooks around an unmodified script.

Torch's own hooks where torch has them (optimizer steps, module calls, registration); a wrapper that passes everything
through where it has none (backward, GradScaler, schedulers). No forward, no data and no random
number of ours; a test compares what the script prints bitwise.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.amp
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import handle_torch_function, has_torch_function

from weaklink.collector.declared import Declared, Examined
from weaklink.collector.job import LookMode
from weaklink.collector.looks import Looks
from weaklink.collector.losses import reproduce
from weaklink.collector.tensors import digest_all, tensors_in
from weaklink.collector.watching.context import (
    inside_another_step,
    is_traced,
    is_transformed,
    mode_matters,
    scheduler_classes,
    unseen_by_warnings,
)
from weaklink.collector.watching.cuts import CutReader
from weaklink.collector.watching.graph import walk
from weaklink.collector.watching.losses import LossReader
from weaklink.collector.watching.movement import Movement
from weaklink.collector.watching.nodes import SITE
from weaklink.collector.watching.optimizers import OptimizerBook, rate
from weaklink.collector.watching.parameters import ParameterBook, RootBook, name_parameters
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.parts import EVENTS, listeners, make_parts
from weaklink.collector.watching.patches import wrap
from weaklink.collector.watching.received import digest_parameters, left_over, read_gradients
from weaklink.collector.watching.rule import Rule, RuleReader
from weaklink.collector.watching.sampling import DENSE_STEPS, is_sampled
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.summaries import SUMMARY_LIMIT, summarize
from weaklink.collector.watching.tape import BackwardSample, ForwardSample, LossCall, StepSample, Tape, Window

# A loss is computed again by hand this often: its function does not change from step to step.
LOSS_CALLS = 1


@dataclass(frozen=True)
class WatchSettings:
    """How closely to look.

    Attributes:
        every_step_until: Steps sampled densely.
        keep_initial: Hold one copy of the parameters to the end, for net movement.
        in_process: The models were made before the hooks: where parameters hang is read off the modules themselves.
        fixed: Nothing is created, replaced or carried over between a backward and its step; nothing is hashed. Saves a
            ledger what only a script's own loop can show.
        looks: Whether looks that take forwards of our own are allowed, and where.
        close_up_at: The steps from which a close-up sees every operation; empty in any run that is no close-up.
    """

    every_step_until: int = DENSE_STEPS
    keep_initial: bool = False
    in_process: bool = False
    fixed: bool = False
    looks: LookMode = "off"
    close_up_at: tuple[int, ...] = ()


# Who only looks on: what fails there must not reach the run.
_PASSIVE = ("weaklink.collector.watching", "weaklink.collector.looking", "weaklink.collector.close_up")

# Watchers that are installed, outermost first: only the innermost one looks, the others see no call of its subject.
_installed: list[Watcher] = []


class Watcher:
    """Installs the hooks, writes the tape, and tells listeners about steps.

    `before_step` and `after_step` are called with the optimizer around every executed step, `before_backward` before
    every backward: interventions, horizons and deadlines hang there. `when_installed` is called once all hooks are
    there: what is wrapped then stands outside of them, so that they see what it makes of a call.
    """

    def __init__(self, user_code: UserCode, settings: WatchSettings | None = None) -> None:
        self.settings = settings or WatchSettings()
        self.code = user_code
        self.tape = Tape()
        self.parameters = ParameterBook()
        self.roots = RootBook()
        self.optimizers = OptimizerBook(self.parameters)
        self.movement = Movement(self.parameters, self.settings.keep_initial)
        self.cuts = CutReader(self.parameters, user_code)
        self.rules = RuleReader(self.looking_away)
        self.declared = Declared()
        self.examined = Examined()
        self.given = False
        self.before_step: list[Callable[[Optimizer], None]] = []
        self.after_step: list[Callable[[Optimizer], None]] = []
        self.before_backward: list[Callable[[], None]] = []
        self.at_first_forward: list[Callable[[nn.Module], bool]] = []
        self.when_installed: list[Callable[[], None]] = []
        self.order = 0
        self._thread = threading.local()
        self._backward_depth = 0
        self._packing_hooks_seen = False
        self._losses = LossReader(self.tape)
        self._first_gradients_read = False
        self._window: Window | None = None
        self._undo: list[Callable[[], object]] = []
        self._targets: Tensor | None = None
        self._away = 0
        self._sample_next = False
        self._calls = 0
        self.looks = Looks(self.settings.looks, self.tape.looks, self.looking_away)
        self.parts: list[Part] = []
        self.use([] if self.settings.fixed else make_parts(self))
        self._open_window()

    @property
    def rule(self) -> Rule | None:
        """What the user declared: `rule(inputs)` gives the targets that belong to these inputs."""
        return self.rules.rule

    # -- installing ------------------------------------------------------------------------------------------------

    def use(self, parts: list[Part]) -> None:
        """Tell these parts, and no others; before `install`."""
        self.parts = parts
        self._listeners = {name: [self.guarded(each) for each in listeners(parts, name)] for name in EVENTS}

    def install(self) -> None:
        """Put all hooks in place. Call before the script imports anything."""
        _installed.append(self)
        if not self.settings.in_process:
            # torch tells a script that compiles a module about hooks: ours, which skip whatever is being compiled.
            warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        for handle in (
            register_optimizer_step_pre_hook(self.guarded(self._step_begins)),
            register_optimizer_step_post_hook(self.guarded(self._step_ended)),
            register_optimizer_step_post_hook(self.step_finished),
            module_hooks.register_module_forward_pre_hook(self._forward_begins),
            module_hooks.register_module_forward_hook(self._forward_ended, with_kwargs=True, always_call=True),
            module_hooks.register_module_parameter_registration_hook(self.guarded(self._parameter_registered)),
            module_hooks.register_module_module_registration_hook(self.guarded(self._module_registered)),
        ):
            self._undo.append(handle.remove)
            # That a hook takes keywords is noted in a table of its own, which torch's handle leaves as it is.
            keywords: dict[int, bool] = getattr(module_hooks, "_global_forward_hooks_with_kwargs", {})
            self._undo.append(functools.partial(keywords.pop, handle.id, None))
        self.wrap(torch.autograd, "backward", self._watched_backward)
        self.wrap(torch.autograd, "grad", self._watched_grad)
        self.wrap(Tensor, "detach", self._watched_detach)
        self.wrap(Tensor, "detach_", self._watched_detach)
        self.wrap(Tensor, "softmax", self._watched_softmax)
        self.wrap(Optimizer, "add_param_group", self._watched_add_param_group)
        self.wrap(torch.amp.GradScaler, "scale", self._watched_scale)
        self.wrap(torch.amp.GradScaler, "step", self._watched_scaler_step)
        self.wrap(torch.autograd.graph.saved_tensors_hooks, "__enter__", self._watched_packing)
        for scheduler in scheduler_classes():
            self.wrap(scheduler, "step", self._watched_scheduler_step)
        for part in self.parts:
            part.install()
        for begin in self.when_installed:
            begin()

    def remove(self) -> None:
        """Take every hook away again; the tape stays."""
        if self in _installed:
            _installed.remove(self)
        while self._undo:
            self._undo.pop()()

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Call `around(original, ...)` in place of a function until the hooks are taken away."""
        # Of a rerun's own change to the run (an intervention, a captured step) a failure is to be seen.
        ours = str(getattr(getattr(around, "func", around), "__module__", "")).startswith(_PASSIVE)
        failed = functools.partial(self.problem, name) if ours and not self.settings.in_process else None
        self._undo.append(wrap(owner, name, around, lambda: self.paused, failed))

    def guarded(self, hook: Callable[..., None]) -> Callable[..., None]:
        """A hook whose own failure ends up on the tape, never in the user's run."""

        @functools.wraps(hook)
        def guarded(*args: Any, **kwargs: Any) -> None:
            if self.paused:
                return
            try:
                hook(*args, **kwargs)
            except Exception as error:
                self.problem(hook.__name__, error)
                if getattr(hook, "__self__", None) is self and self.tape.broken is None:
                    self.tape.broken = f"{hook.__name__.strip('_')} raised {type(error).__name__}"

        return guarded

    @property
    def paused(self) -> bool:
        """Whether it looks away, was removed, or another watcher was installed after it and looks now."""
        return self._away > 0 or not _installed or _installed[-1] is not self

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """What happens meanwhile is no part of the run."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1

    def problem(self, where: str, error: Exception) -> None:
        """Write down a failure of our own, once each kind."""
        text = f"{where.strip('_')}: {type(error).__name__}: {error}"
        if text not in self.tape.problems and len(self.tape.problems) < 50:
            self.tape.problems.append(text)

    def tell(self, event: str, *args: Any) -> None:
        """Call the parts that listen to this event; what they raise is written down."""
        for listener in self._listeners[event]:
            listener(*args)

    def finish(self) -> None:
        """The script is over: bring everything to the host, let the parts and the held looks speak."""
        self.flush_losses()
        if not self.settings.fixed:
            self.tell("finish")
        self.looks.settle()

    def sample_next(self) -> None:
        """Sample the next step too: something has changed."""
        self._sample_next = True

    def flush_losses(self) -> None:
        """Bring losses still on the device to the tape."""
        self._losses.flush()

    @property
    def saved_tensors_readable(self) -> bool:
        """Whether a graph's saved tensors may be read: under packing hooks, unpacking recomputes."""
        return not self._packing_hooks_seen

    # -- windows ---------------------------------------------------------------------------------------------------

    @property
    def sampling(self) -> bool:
        """Whether the step now under way is sampled."""
        return self._window is not None

    def _open_window(self) -> None:
        step = self.tape.steps + 1
        sampled = self._sample_next or is_sampled(step, self.settings.every_step_until)
        self._sample_next = False
        # A run that only calls backward and never steps must not collect samples without end.
        self._window = Window(step) if sampled else None
        if self._window is not None:
            self.tape.windows.append(self._window)
        self.cuts.window = self._window

    def _tick(self) -> int:
        self.order += 1
        return self.order

    def name_everything(self) -> None:
        """Bring names and ownership up to date with the live modules and optimizers."""
        name_parameters(self.parameters, self.roots)
        for entry, optimizer in self.optimizers.alive():
            self.optimizers.read_groups(entry, optimizer.param_groups)

    def adopt(self, module: nn.Module) -> None:
        """Take a module that was there before the hooks, with everything in it, as if it were registered now."""
        self.roots.entry(module)
        for parent in module.modules():
            for name, parameter in parent.named_parameters(recurse=False, remove_duplicate=False):
                self.parameters.registered(parent, name, parameter)
            for name, child in parent.named_children():
                self.parameters.module_registered(parent, name, child)

    def adopt_optimizer(self, optimizer: Optimizer) -> None:
        """Take an optimizer that was there before the hooks."""
        entry, _ = self.optimizers.entry(optimizer, None, self._tick())
        self.optimizers.read_groups(entry, optimizer.param_groups)

    # -- registration ----------------------------------------------------------------------------------------------

    def _parameter_registered(self, module: nn.Module, name: str, parameter: Tensor | None) -> None:
        if parameter is None or torch.compiler.is_compiling():
            return
        entry = self.parameters.registered(module, name, parameter)
        if entry.created is None:
            entry.created = self.code.site(f"{type(module).__name__}.{name} created")
            entry.created_by = self.code.maker_site(f"{type(module).__name__}.{name} created from here")
            entry.order = self._tick()

    def _module_registered(self, parent: nn.Module, name: str, child: nn.Module | None) -> None:
        if child is not None:
            self.parameters.module_registered(parent, name, child)

    # -- forward ---------------------------------------------------------------------------------------------------

    def _forward_begins(self, module: nn.Module, args: Any) -> None:
        if is_traced() or self.paused:
            return
        depth = getattr(self._thread, "depth", 0)
        self._thread.depth = depth + 1
        if depth == 0:
            self._thread.with_gradients = torch.is_grad_enabled()
            self.tape.phase = "forward" if torch.is_grad_enabled() else "evaluation"
            self.guarded(self._root_begins)(module, args)
        elif self._window is not None and self._thread.with_gradients and not torch.is_grad_enabled():
            self.guarded(self.cuts.called_without_gradients)(module)

    def _root_begins(self, module: nn.Module, args: Any) -> None:
        known = len(self.roots.entries)
        root = self.roots.entry(module)
        if root is None:
            return
        if self.settings.in_process and len(self.roots.entries) > known:
            self.adopt(module)
        if self.at_first_forward:
            self.at_first_forward = [listener for listener in self.at_first_forward if not listener(module)]
        self.tape.forwards += 1

    def _forward_ended(self, module: nn.Module, args: Any, *rest: Any) -> None:
        # (kwargs, output); after an exception torch leaves the kwargs out.
        kwargs, output = rest if len(rest) == 2 else ({}, rest[-1])
        if is_traced() or self.paused:
            return
        self._thread.depth = max(getattr(self._thread, "depth", 1) - 1, 0)
        raised = output is None and sys.exc_info()[0] is not None
        if self._thread.depth == 0 and self.tape.phase == "evaluation" and not raised:
            self.tape.phase = "between"
        if self._thread.depth or raised:
            return
        if self._window is not None and torch.is_grad_enabled():
            self.guarded(self._root_ended)(module, (args, kwargs), output)
        if self._listeners["root_called"]:
            self.guarded(self._tell_root_called)(module, args, kwargs, output)

    def _tell_root_called(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if (root := self.roots.entry(module)) is not None:
            sampled = self._window is not None
            self._calls += 1
            call = RootCall(self._calls, root, module, args, kwargs, output, torch.is_grad_enabled(), sampled)
            self.tell("root_called", call)
        elif self._window is not None and torch.is_grad_enabled():
            self.tell("criterion_called", args)

    def _root_ended(self, module: nn.Module, args: Any, output: Any) -> None:
        root, window = self.roots.entry(module), self._window
        if root is None or window is None or len(window.forwards) >= 8:
            return
        inputs, outputs = list(tensors_in(args)), list(tensors_in(output))
        if any(is_transformed(tensor) for tensor in inputs + outputs):
            return  # inside vmap, grad and their like a tensor has no values to read
        floating = next((tensor for tensor in outputs if tensor.is_floating_point()), None)
        if not self.tape.rules:  # compared once: a rule does not change from step to step
            self.guarded(self.rules.forward)(args[0], args[1])
        hashed = not self.settings.fixed and self.tape.outputs_digest is None and not self.tape.backwards
        if hashed and floating is not None:
            self.tape.inputs_digest = digest_all(inputs)
            self.tape.outputs_digest = digest_all(outputs)
        modes = sorted({type(sub).__name__ for sub in module.modules() if mode_matters(sub)})
        window.forwards.append(
            ForwardSample(
                root.serial,
                self.code.site(f"{root.class_name} called"),
                module.training,
                modes if not module.training else [],
                [summarize(tensor) for tensor in inputs[:4]],
                summarize(floating) if floating is not None else None,
            )
        )
        for tensor in module.parameters():
            entry = self.parameters.entry(tensor)
            entry.forward_ran = True
            window.live.add(entry.serial)

    # -- backward --------------------------------------------------------------------------------------------------

    @unseen_by_warnings
    def _watched_backward(self, original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        # A re-entrant call (activation checkpointing) is part of the outer one.
        if self._backward_depth or is_traced():
            return original(tensors, *args, **kwargs)
        self.tape.phase = "backward"
        for listener in self.before_backward:
            listener()
        # `backward(inputs=...)` gives a gradient to these alone, whatever else the loss reaches.
        self.guarded(self._backward_begins)(tensors, kwargs.get("inputs"))
        sample = self._sample_of_this_backward()
        if self._listeners["backward_begins"]:
            self.tell("backward_begins", list(tensors_in(tensors)), sample)
        self._backward_depth += 1
        try:
            result = original(tensors, *args, **kwargs)
        except Exception as error:
            if self._listeners["backward_raised"]:
                self.tell("backward_raised", list(tensors_in(tensors)), error)
            raise
        finally:
            self._backward_depth -= 1
        self.tape.phase = "between"
        self.guarded(self._backward_ended)()
        self.tell("backward_ended", sample)
        return result

    def _backward_begins(self, tensors: Any, inputs: Any = None) -> None:
        self.tape.backwards += 1
        index = self.tape.backwards
        losses = list(tensors_in(tensors))
        site = self.code.site("backward called")
        self.tape.last_backward_site = site
        loss = losses[0] if losses else None
        value = self._losses.note(index, loss, at_once=self.sampling)
        if loss is not None and not any(tensor.requires_grad for tensor in losses):
            self.tape.without_graph = True
            self.tape.backward_without_graph = site
        if self._window is None or len(self._window.backwards) >= 64:
            return
        self.name_everything()
        if index == 1 and not self.settings.fixed:
            self.movement.at_first_backward()
            digest_parameters(self.parameters)
        sample = BackwardSample(
            index, site, value, any(tensor.requires_grad for tensor in losses), None, left_over(self.parameters)
        )
        for tensor in losses[:4]:
            unpacked = not self._packing_hooks_seen
            graph = walk(tensor, self.parameters, unpacked, self.guarded(self._compare_rule), self.code)
            if sample.graph is None:
                sample.graph = graph
            else:
                sample.graph.leaves |= graph.leaves
        if sample.graph is not None and isinstance(inputs, (Tensor, list, tuple)):  # a generator is not ours to consume
            sample.graph.leaves &= {self.parameters.entry(tensor).serial for tensor in tensors_in(inputs)}
        if sample.graph is not None:
            self._note_reached(sample.graph.leaves)
            if index == 1 and not self.settings.fixed:
                self.movement.loose_leaves(sample.graph.leaves)
            if index == 1 and sample.graph.losses:
                self.tape.targets_digest = sample.graph.losses[0].target_digest
        self._window.backwards.append(sample)
        targets, self._targets = self._targets, None
        if targets is not None:
            self.guarded(self._compare_rule)(targets)  # of a loss whose graph keeps none

    def _compare_rule(self, targets: Tensor) -> None:
        if (sample := self.rules.compare(targets)) is not None:
            self.tape.rules.append(sample)

    def loss_called(self, loss_fn: Any, outputs: Any, targets: Any, loss: Any) -> None:
        """A loss whose function and arguments are known (a factory, a ledger) is about to be differentiated."""
        self._targets = targets if isinstance(targets, Tensor) else None
        if self._window is None or len(self.tape.loss_calls) >= LOSS_CALLS:
            return
        reported = float(loss.item()) if isinstance(loss, Tensor) and loss.numel() == 1 and not loss.is_meta else None
        by_hand = reproduce(loss_fn, outputs, targets) if _readable(outputs) else None
        site = self.code.site("loss called")
        self.tape.loss_calls.append(LossCall(self.tape.steps + 1, by_hand, reported, site))

    def _note_reached(self, leaves: set[int]) -> None:
        for entry in self.parameters.entries:
            if entry.serial in leaves:
                entry.reached = True
                if entry.is_parameter and not entry.in_model:
                    entry.places = self.parameters.places(entry.serial)
            elif entry.reached is None and entry.in_model:
                entry.reached = False

    def _sample_of_this_backward(self) -> BackwardSample | None:
        if self._window is None or not self._window.backwards:
            return None
        sample = self._window.backwards[-1]
        return sample if sample.index == self.tape.backwards else None

    def _backward_ended(self) -> None:
        if (sample := self._sample_of_this_backward()) is not None:
            first = not self._first_gradients_read and not self.settings.fixed
            sample.gradients = read_gradients(self.parameters, with_digests=first)
            self._first_gradients_read = True

    @unseen_by_warnings
    def _watched_grad(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._backward_depth:
            self.tape.gradient_calls += 1
        return original(*args, **kwargs)

    @unseen_by_warnings
    def _watched_detach(self, original: Callable[..., Any], tensor: Tensor) -> Any:
        if self.cuts.window is not None and not self._backward_depth and not is_traced():
            try:
                with torch._C.DisableTorchFunction():
                    self.cuts.called(tensor)
            except Exception as error:
                self.problem("detach", error)
        return self._called(original, tensor)

    @unseen_by_warnings
    def _watched_softmax(self, original: Callable[..., Any], tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = self._called(original, tensor, *args, **kwargs)
        if self._window is not None and not is_traced() and isinstance(result, Tensor):
            try:
                with torch._C.DisableTorchFunction():
                    self._note_softmax(result)
            except Exception as error:
                self.problem("softmax", error)
        return result

    def _note_softmax(self, result: Tensor) -> None:
        if result.grad_fn is not None and not is_transformed(result):
            metadata: Any = result.grad_fn.metadata  # a dictionary; the stubs say a function
            metadata[SITE] = self.code.site("softmax called")

    @unseen_by_warnings
    def _called(self, original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """The call itself. What overrides torch's functions, and was there first, knows them by identity."""
        if self.settings.in_process and has_torch_function((tensor,)):
            return handle_torch_function(original, (tensor,), tensor, *args, **kwargs)
        return original(tensor, *args, **kwargs)

    @unseen_by_warnings
    def _watched_packing(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._packing_hooks_seen = True
        return original(*args, **kwargs)

    # -- optimizers ------------------------------------------------------------------------------------------------

    @unseen_by_warnings
    def _watched_add_param_group(self, original: Callable[..., Any], optimizer: Optimizer, group: Any) -> Any:
        result = original(optimizer, group)
        self.guarded(self._groups_changed)(optimizer)
        return result

    def _groups_changed(self, optimizer: Optimizer) -> None:
        site = self.code.site(f"{type(optimizer).__name__} built")
        entry, new = self.optimizers.entry(optimizer, site, self.order + 1)
        if new:
            self._tick()
        self.optimizers.read_groups(entry, optimizer.param_groups)

    def _step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # A step inside a step (`super().step()`, an optimizer around another) is part of the outer one.
        if inside_another_step():
            return
        self.tape.phase = "step"
        self.tape.steps_asked += 1
        self.tape.last_step_site = self.code.site("step called")
        entry, new = self.optimizers.entry(optimizer, None, self.order + 1)
        for listener in self.before_step:
            listener(optimizer)
        rates = [rate(group) for group in optimizer.param_groups]  # as this step will use them
        self.tape.highest_rate = max([self.tape.highest_rate, *(r for r in rates if r == r)])
        if (not self.tape.rates or self.tape.rates[-1][1] != rates) and len(self.tape.rates) < 2000:
            self.tape.rates.append((self.tape.steps + 1, rates))
        if self._window is not None:
            if not self.settings.fixed:
                self.name_everything()
            if new:
                self.optimizers.read_groups(entry, optimizer.param_groups)
            self.movement.before(optimizer, entry)
        self.tell("step_begins", optimizer, entry)

    def _step_ended(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if inside_another_step():
            return
        self.tape.phase = "between"
        self.tape.steps += 1
        entry, _ = self.optimizers.entry(optimizer, None, self.order + 1)
        entry.steps += 1
        taken: StepSample | None = None
        if self._window is not None:
            still = self.movement.still_entries()
            before, delta, moved, norm = self.movement.after()
            taken = StepSample(
                self.tape.steps,
                entry.serial,
                self.tape.last_step_site,
                [rate(group) for group in optimizer.param_groups],
                list(entry.held),
                norm,
                before,
                delta,
                moved,
                {} if self.settings.fixed else left_over(self.parameters),
                still,
            )
            self._window.steps.append(taken)
            if self.tape.steps >= self.settings.every_step_until:
                self.movement.dense_window_ended()
        self.tell("step_ended", optimizer, entry, taken)
        self._open_window()

    def step_finished(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Registered last, unguarded: a horizon stops the run from here."""
        if inside_another_step() or self.paused:
            return
        for listener in self.after_step:
            listener(optimizer)

    @unseen_by_warnings
    def _watched_scaler_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.tape.scaler_asked += 1
        asked = self.tape.steps_asked
        result = original(*args, **kwargs)
        self.tape.scaler_skipped += self.tape.steps_asked == asked
        return result

    @unseen_by_warnings
    def _watched_scale(self, original: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        result = original(scaler, outputs)
        if isinstance(outputs, Tensor) and isinstance(result, Tensor):
            self._losses.scaled(result, outputs)
        return result

    @unseen_by_warnings
    def _watched_scheduler_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # A subclass that calls its parent's step counts once.
        if not getattr(self._thread, "in_scheduler", False):
            self._thread.in_scheduler = True
            try:
                if self.tape.steps or self.tape.backwards:
                    self.tape.scheduler_steps += 1
                    self.tape.scheduler_site = self.tape.scheduler_site or self.code.site("scheduler stepped")
                return original(*args, **kwargs)
            finally:
                self._thread.in_scheduler = False
        return original(*args, **kwargs)


def _readable(outputs: Any) -> bool:
    """Whether outputs can be computed with again: in float64, so not when there are very many of them."""
    return all(tensor.numel() <= SUMMARY_LIMIT and not tensor.is_meta for tensor in tensors_in(outputs))
