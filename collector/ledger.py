"""The fixed-batch ledger: the learning chain of a live system, from one step that is undone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from weaklink.collector.assembly import read
from weaklink.collector.chain import LearningChain
from weaklink.collector.checks import shown, unmatched_pattern, wanted_instead
from weaklink.collector.errors import LedgerError
from weaklink.collector.evidence import Outcome, RaisedException, Subject
from weaklink.collector.examination import examine_preserved
from weaklink.collector.factory import declare
from weaklink.collector.preserve import Kept, preserved
from weaklink.collector.rows.vanishing import WINDOWS_FOR_ALWAYS
from weaklink.collector.step import StepRefused, clear_gradients, rows_of, train_step
from weaklink.collector.system import TrainingSystem, held_by, without_history
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.tape import Tape
from weaklink.collector.watching.watcher import Watcher, WatchSettings


def learning_ledger(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    x: Any,
    y: Any,
    loss_fn: Callable[[Any, Any], Tensor] = functional.cross_entropy,
    num_classes: int | None = None,
    rule: Callable[[Any], Any] | None = None,
    expected: str | Sequence[str] | None = None,
    capability_steps: int = 0,
) -> LearningChain:
    """Read the learning chain of a live system on one batch, and leave everything as it was.

    One forward, backward and step of the real model with the real optimizer; then parameters, gradients, buffers,
    optimizer state, modes, hooks and random state are put back, bit for bit, also when something raises half-way. Four
    findings ask for more steps, at most five, all undone: gradients that are exactly zero (are they always?), a step
    longer than the parameters it moves (where does the loss go?), a step that moves nothing, and a rate of zero.

    Args:
        model: The network, on any device, in the mode it is trained in.
        optimizer: The optimizer that trains it, or several.
        x: One batch of inputs: a tensor, a tuple (positional) or a dictionary (by keyword). What it was computed from
            is no part of the system.
        y: Its targets, as `loss_fn` takes them.
        loss_fn: `loss_fn(model(x), y)` gives the scalar that is minimised.
        num_classes: How many classes the targets may have; by default what the outputs have room for.
        rule: `rule(x)` gives the targets that belong to these inputs, where that is known.
        expected: Patterns over the names of the parameters meant to be trained; by default all that require a gradient.
        capability_steps: Steps of the tiny-batch fits, with the real optimizer and with fresh SGD; 0 leaves them out.

    Returns:
        The chain: `.rows`, `.row("GRADIENT/present")`, `.first_divergence`, `.suspected`, `.to_json()`.

    Raises:
        LedgerError: An argument of the wrong kind, an empty batch, or parameters without values (meta, lazy); names the
            argument. A model or loss that raises is no error: it is a row.
    """
    system = TrainingSystem(
        model,
        optimizer,
        without_history(x),
        without_history(y),
        loss_fn,
        num_classes,
        rule,
        expected,
        capability_steps=capability_steps,
    )
    _check(system)
    # A training step needs gradients, whatever the block it is asked for in.
    with torch.inference_mode(False), torch.enable_grad():
        return _read_chain(system)


def _read_chain(system: TrainingSystem) -> LearningChain:
    watcher = Watcher(UserCode(Path.cwd()), WatchSettings(in_process=True, fixed=True))
    watcher.adopt(system.model)
    for one in system.optimizers:
        watcher.adopt_optimizer(one)
    declare(system, watcher)
    outcome = Outcome(ended="completed")
    started = time.monotonic()
    used = (system.inputs, system.targets, *held_by(system.loss_fn))
    with preserved(system.modules, system.optimizers, used) as kept:
        _prepare(system, watcher, kept)
        watcher.install()
        try:
            _take_steps(system, watcher, outcome)
        finally:
            watcher.remove()
        watcher.flush_losses()
        outcome.seconds = round(time.monotonic() - started, 3)
        net = watcher.movement.net_of_sampled_steps()
        if outcome.raised is None and not watcher.examined.rows_refused and not watcher.examined.out_of_range:
            kept.put_back()
            examine_preserved(system, watcher)
    subject = Subject(kind="process", name=f"learning_ledger({type(system.model).__name__})")
    return LearningChain(read(watcher, subject, outcome, watcher.declared, net=net))


def _prepare(system: TrainingSystem, watcher: Watcher, kept: Kept) -> None:
    """Set gradients aside, so that the step takes this batch's alone, and lend the copies to the measurement."""
    watcher.movement.borrow(kept.copies)
    watcher.examined.set_aside = clear_gradients(system)
    place = "on the host, where the device lacks room" if kept.on_host else "beside the originals"
    copies = f"{kept.bytes / 1e6:.1f} MB of copies were kept {place}"
    watcher.examined.copies = f"{copies}; everything was put back from them"


def _take_steps(system: TrainingSystem, watcher: Watcher, outcome: Outcome) -> None:
    """One step, and more where what it showed asks for them; what raises becomes the outcome."""
    try:
        train_step(system, watcher, undoable=True)
        if watcher.tape.steps and _at_rate_zero(watcher):
            train_step(system, watcher, undoable=True)
        while watcher.tape.steps and watcher.tape.steps < WINDOWS_FOR_ALWAYS and _asks_for_more(watcher.tape):
            train_step(system, watcher, undoable=True)
    except StepRefused:
        pass
    except Exception as error:
        where = watcher.code.site_of_traceback(error.__traceback__, f"{type(error).__name__} raised")
        outcome.ended = "raised"
        outcome.raised = RaisedException(type=type(error).__name__, message=str(error)[:2000], where=where)


def _at_rate_zero(watcher: Watcher) -> bool:
    """Whether nothing can move, and no schedule is about to raise the rate."""
    return watcher.tape.highest_rate == 0.0 and not any(entry.held_at_zero for entry in watcher.optimizers.entries)


def _asks_for_more(tape: Tape) -> bool:
    """Whether the last window left something open that only a further step can show."""
    window = next((w for w in reversed(tape.windows) if w.steps), None)
    if window is None or (tape.losses.value and not math.isfinite(tape.losses.value[-1])):
        return False
    zero = any(state == "zero" for backward in window.backwards for state, _ in backward.gradients.values())
    step = window.steps[-1]
    # Something had a gradient, and nothing moved: a second step tells a lost update from a first one that is special.
    given = {s for backward in window.backwards for s, (state, _) in backward.gradients.items() if state == "nonzero"}
    taken = given & set(step.consumed)
    if taken and tape.steps < 2 and not any(step.moved.get(serial) for serial in step.consumed):
        return tape.highest_rate > 0.0
    outgrown = math.hypot(*step.delta.values()) > math.hypot(*step.before.values()) > 0.0
    return zero or outgrown


def _check(system: TrainingSystem) -> None:
    """Refuse what no ledger can be read from; names the argument.

    Raises:
        LedgerError: See `learning_ledger`.
    """
    for part in ("model", "loss_fn", "num_classes", "rule", "expected", "capability_steps"):
        value = getattr(system, part)
        if (wanted := wanted_instead(part, value)) is not None:
            raise LedgerError(f"{part} cannot be {shown(value)}.", about=part, hint=f"pass {wanted}.")
    optimizers: list[Any] = list(system.optimizers)
    for one in optimizers:
        # One that is not torch's shows what it holds; its step cannot be undone, and is not taken.
        if not isinstance(one, Optimizer) and not isinstance(getattr(one, "param_groups", None), list):
            raise LedgerError(
                f"optimizer cannot be {shown(one)}.",
                about="optimizer",
                hint="pass a torch.optim.Optimizer (or what has its param_groups), or a list of them.",
            )
    if (stray := unmatched_pattern(system)) is not None:
        pattern, names = stray
        raise LedgerError(
            f"No parameter's name matches {pattern!r}.", about="expected", hint=f"the parameters: {names}."
        )
    _check_tensors(system)


def _check_tensors(system: TrainingSystem) -> None:
    for name, parameter in [*system.model.named_parameters(), *system.model.named_buffers()]:
        if nn.parameter.is_lazy(parameter):
            raise LedgerError(
                f"{name!r} has no shape yet.",
                about="model",
                hint="call the model once on a batch, then build the optimizer.",
            )
        if parameter.is_meta:
            raise LedgerError(
                f"{name!r} is on the meta device and has no values.",
                about="model",
                hint="materialise it: model.to_empty(device=...), then load or initialise the weights.",
            )
    for name, batch in (("x", system.inputs), ("y", system.targets)):
        for tensor in tensors_in(batch):
            if tensor.is_meta:
                raise LedgerError(
                    "A tensor of the batch has no values (meta device).", about=name, hint="pass a real batch."
                )
        if rows_of(batch) == 0:
            raise LedgerError("The batch is empty.", about=name, hint="pass at least one row.")
