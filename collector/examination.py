"""Looks at a system in hand that a script's own loop does not offer: each one leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.declared import Independence, ModeGap
from weaklink.collector.preserve import preserved
from weaklink.collector.random_state import keep_global_streams
from weaklink.collector.step import rows_of
from weaklink.collector.system import TrainingSystem, call_model, held_by
from weaklink.collector.tensors import mapped, tensors_in
from weaklink.collector.watching.context import mode_matters
from weaklink.collector.watching.rule import PERMUTATIONS
from weaklink.collector.watching.watcher import Watcher

TINY_ROWS = 32
# Finding equal rows sorts them; above this many entries that would take longer than the step.
DUPLICATE_ENTRIES = 1_000_000
NEIGHBOUR_ROWS = 2048


def examine(system: TrainingSystem, watcher: Watcher) -> None:
    """Take every look the system allows, and leave it as it was. A look that raises says so in its row."""
    batches = (system.inputs, system.targets, system.validation)
    with preserved(system.modules, system.optimizers, (*batches, *held_by(system.loss_fn))):
        examine_preserved(system, watcher)


def examine_preserved(system: TrainingSystem, watcher: Watcher) -> None:
    """The same below a `preserved` of the caller's. Each look draws from the random streams as they are now."""
    outputs: list[Any] = []  # of the batch in eval mode: two looks want them
    looks: tuple[tuple[str, Callable[[], None]], ...] = (
        ("TASK/duplicates", lambda: _duplicates(system, watcher)),
        ("TASK/pairing", lambda: _pairing(system, watcher)),
        ("OBJECTIVE/independence", lambda: _independence(system, watcher, outputs)),
        ("CAPABILITY", lambda: _capability(system, watcher)),
        ("EVALUATION/mode_gap", lambda: _mode_gap(system, watcher, outputs)),
        ("EVALUATION/validation", lambda: _validation(system, watcher)),
    )
    with watcher.looking_away():
        for row_id, look in looks:
            put_back = keep_global_streams(mps=False)
            try:
                look()
            except Exception as error:  # the user's model or loss, called in another way than it is made for
                watcher.examined.refuse(row_id, f"it raised {type(error).__name__}: {str(error)[:200]}")
            finally:
                put_back()


def _loss_of(system: TrainingSystem, inputs: Any, targets: Any) -> float:
    loss = system.loss_fn(call_model(system.model, inputs), targets)
    return float(loss.mean())  # the mean of one that does not reduce itself


def _mode_gap(system: TrainingSystem, watcher: Watcher, outputs: list[Any]) -> None:
    """The loss in both modes. `outputs` are those of an eval-mode forward on the batch, where one was made."""
    kinds = sorted({type(module).__name__ for module in system.model.modules() if mode_matters(module)})
    measured = watcher.tape.losses.value
    if kinds or not measured or not system.model.training:
        with preserved(system.modules), torch.no_grad():  # batch statistics move in train mode
            system.model.train()
            train = _loss_of(system, system.inputs, system.targets)
    else:
        train = measured[0]  # the step's own, before anything moved
    with _in_eval_mode(system.model), torch.no_grad():
        given = outputs[0] if outputs else call_model(system.model, system.inputs)
        loss = system.loss_fn(given, system.targets)
    watcher.examined.mode_gap = ModeGap(train, float(loss.mean()), kinds)


def _validation(system: TrainingSystem, watcher: Watcher) -> None:
    if system.validation is None:
        watcher.examined.refuse("EVALUATION/validation", "no validation data was given")
        return
    inputs, targets = system.validation
    with _in_eval_mode(system.model), torch.no_grad():
        trained = _loss_of(system, system.inputs, system.targets)
        watcher.examined.validation = ModeGap(trained, _loss_of(system, inputs, targets), [])


def _independence(system: TrainingSystem, watcher: Watcher, outputs: list[Any]) -> None:
    """Row 0 of every input is replaced by the first row that differs from it; both forwards draw the same numbers."""
    rows = rows_of(system.inputs)
    first = next((tensor for tensor in tensors_in(system.inputs) if tensor.dim()), None)
    if first is None or rows is None or rows < 3:
        watcher.examined.refuse("OBJECTIVE/independence", "the batch has fewer than three rows")
        return
    other = next((row for row in range(1, rows) if not torch.equal(first[0], first[row])), None)
    if other is None:
        watcher.examined.refuse("OBJECTIVE/independence", "all rows of the inputs are equal")
        return
    outputs.append(_evaluated(system, system.inputs))
    plain = _first_floating(outputs[0])
    changed = _first_floating(_evaluated(system, mapped(system.inputs, lambda tensor: _with_row(tensor, rows, other))))
    if plain is None or changed is None or len(plain) != rows or plain.shape != changed.shape:
        watcher.examined.refuse("OBJECTIVE/independence", "the outputs have no row for each row of the inputs")
        return
    differs = (plain != changed).flatten(1).any(dim=1) if plain.dim() > 1 else plain != changed
    moved = [int(row) for row in differs.nonzero().flatten().tolist() if row != 0]
    again = _first_floating(_evaluated(system, system.inputs)) if moved else plain
    if again is None or not torch.equal(plain, again):
        watcher.examined.refuse("OBJECTIVE/independence", "two forwards of one batch do not agree bit for bit")
        return
    watcher.examined.independence = Independence(rows, 0, moved)


def _with_row(tensor: Tensor, rows: int, other: int) -> Tensor:
    if not tensor.dim() or len(tensor) != rows:
        return tensor
    changed = tensor.detach().clone()
    changed[0] = changed[other]
    return changed


def _evaluated(system: TrainingSystem, inputs: Any) -> Any:
    put_back = keep_global_streams(mps=False)
    try:
        with _in_eval_mode(system.model), torch.no_grad():
            return call_model(system.model, inputs)
    finally:
        put_back()  # the next forward draws the same numbers


def _first_floating(outputs: Any) -> Tensor | None:
    return next((t for t in tensors_in(outputs) if t.is_floating_point() and t.dim()), None)


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _duplicates(system: TrainingSystem, watcher: Watcher) -> None:
    first = next((tensor for tensor in tensors_in(system.inputs) if tensor.dim()), None)
    if first is None or not len(first) or first.numel() > DUPLICATE_ENTRIES or first.layout != torch.strided:
        watcher.examined.refuse("TASK/duplicates", "the inputs are no dense batch, or a very large one")
        return
    distinct, index = torch.unique(first.detach().flatten(1) if first.dim() > 1 else first, dim=0, return_inverse=True)
    watcher.examined.duplicates = len(first) - len(distinct), _contradictions(system.targets, index, len(distinct))


def _pairing(system: TrainingSystem, watcher: Watcher) -> None:
    """Whether rows that lie together share a target: Cover and Hart's nearest neighbour, against permuted targets."""
    first = next((tensor for tensor in tensors_in(system.inputs) if tensor.dim()), None)
    targets = system.targets
    known = isinstance(targets, Tensor) and targets.dim() == 1 and not targets.is_floating_point()
    if not known or first is None or not first.is_floating_point() or len(first) != len(targets):
        watcher.examined.refuse("TASK/pairing", "needs floating-point inputs and one class index a row")
        return
    if not 8 <= len(first) <= NEIGHBOUR_ROWS or first.numel() > DUPLICATE_ENTRIES or first.layout != torch.strided:
        watcher.examined.refuse("TASK/pairing", f"needs 8 to {NEIGHBOUR_ROWS} dense rows")
        return
    distances = torch.cdist(*(2 * (first.detach().flatten(1).float(),)))
    distances.fill_diagonal_(float("inf"))
    nearest = distances.argmin(dim=1)
    generator = torch.Generator().manual_seed(0)
    # The device is said: a default one, set by the user, would not fit the generator.
    drawn = [torch.randperm(len(targets), generator=generator, device="cpu") for _ in range(PERMUTATIONS)]
    orders = torch.stack(drawn).to(targets.device)
    counts = [(targets[nearest] == targets).sum()]
    counts += [(targets[order][nearest] == targets[order]).sum() for order in orders]
    agreeing, *by_chance = torch.stack(counts).tolist()
    watcher.examined.neighbours = len(targets), int(agreeing), int(max(by_chance))


def _contradictions(targets: Any, index: Tensor, distinct: int) -> int:
    """How many distinct inputs stand with more than one target. Only for class indices, one a row."""
    if not isinstance(targets, Tensor) or targets.shape != index.shape or targets.is_floating_point():
        return 0
    pairs = torch.unique(torch.stack([index, targets.to(index.device, index.dtype)]), dim=1)
    return int((torch.bincount(pairs[0], minlength=distinct) > 1).sum())


def _capability(system: TrainingSystem, watcher: Watcher) -> None:
    if system.capability_steps < 1:
        watcher.examined.refuse("CAPABILITY", "asked for with capability_steps")
        return
    from weaklink.collector.probes import tiny_batch

    found = tiny_batch(
        system.model,
        system.optimizer,
        system.inputs,
        system.targets,
        system.loss_fn,
        steps=system.capability_steps,
        rows=TINY_ROWS,
    )
    watcher.examined.capability_steps = system.capability_steps
    if found.real is None:
        watcher.examined.refuse("CAPABILITY", f"the real optimizer was not run: {found.refused}")
        return
    watcher.examined.capability = list(found)
