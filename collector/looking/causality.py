"""Whether a model that predicts the next token is shown that token.

Where the targets are the inputs moved by one position, the outputs at position t may depend on the inputs up to t. The
input at t + 1 is the target there: an output that moves with it has read its answer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.looking.batches import TrainingBatch, quiet
from weaklink.collector.looking.held import HoldSummaries
from weaklink.collector.looking.independence import _with
from weaklink.collector.looking.places import Place, Places
from weaklink.collector.tensors import tensors_in

# Positions that are changed, spread over the sequence.
POSITIONS = 4
# Movement that is no more than so many units in the last place of the largest output is none.
ROUNDING = 1024


def look_at_order(model: nn.Module, batch: TrainingBatch, places: Places) -> dict[str, Any]:
    """Change an input that is the target of the position before; answers where the outputs moved.

    Returns:
        `shifted`: whether the targets are the inputs moved by one; then `changed` (positions), `leaking` (those of
        which the output before moved, beyond rounding, at a position that is scored), and `where`: the
        innermost part of the model that first lets a later position through, where it is called or, where it looks both
        ways by its own make, where it was made. `by_summary`: whether all of that goes through what has no place for
        each token, such as the code of an autoencoder.

    Raises:
        ValueError: There is no objective over class indices with a position each, or two forwards differ.
    """
    objective = batch.objective
    if objective is None or objective.targets.is_floating_point():
        raise ValueError("the targets are no class indices of a recognised loss")
    shifted = next(
        (
            found
            for tensor in tensors_in([batch.args, batch.kwargs])
            if (found := _time(tensor, objective.targets)) is not None
        ),
        None,
    )
    if shifted is None:
        return {"shifted": False}
    tokens, time, scored = shifted
    with quiet(model):
        plain = _by_position(model, batch, batch.args, batch.kwargs, tokens, time)
        if not torch.equal(plain, _by_position(model, batch, batch.args, batch.kwargs, tokens, time)):
            raise ValueError("two forwards of one batch do not agree bit for bit")
        # A convolution by Fourier transform spreads its rounding over all positions.
        rounding = ROUNDING * torch.finfo(plain.dtype).eps * plain.abs().max()
        changed, leaking = [], []
        for position in _positions(scored, time):
            other = _replaced(tokens, time, position)
            args, kwargs = _with(batch.args, tokens, other), _with(batch.kwargs, tokens, other)
            after = _by_position(model, batch, args, kwargs, tokens, time)
            before = position - 1
            moves = ((after - plain).abs() > rounding).any(dim=-1).select(time, before) & scored.select(time, before)
            moves &= (other != tokens).select(time, position)
            changed.append(position)
            if bool(moves.any()):
                leaking.append(position)
        both_ways, where = _mixing(model, batch, tokens, time, leaking[0], places) if leaking else (False, [])
        by_summary = bool(leaking) and not any(
            _moves_past_summaries(model, batch, tokens, time, position, rounding) for position in leaking
        )
    return {
        "shifted": True,
        "changed": changed,
        "leaking": leaking,
        "by_summary": by_summary,
        "both_ways": both_ways,
        "where": where,
    }


def _moves_past_summaries(
    model: nn.Module, batch: TrainingBatch, tokens: Tensor, time: int, position: int, rounding: Tensor
) -> bool:
    """Whether the output before a position moves with its token while what sums up the sequence is held."""
    hold = HoldSummaries(tokens.shape[1 - time], tokens.shape[time])
    other = _replaced(tokens, time, position)
    with hold:
        plain = _by_position(model, batch, batch.args, batch.kwargs, tokens, time)
    with hold:
        args, kwargs = _with(batch.args, tokens, other), _with(batch.kwargs, tokens, other)
        after = _by_position(model, batch, args, kwargs, tokens, time)
    return bool(((after - plain).abs() > rounding).select(time, position - 1).any())


def _time(tokens: Tensor, targets: Tensor) -> tuple[Tensor, int, Tensor] | None:
    """The tokens, their time dimension, and the positions that are scored with the next token as their target.

    None where these targets are not these tokens moved by one.
    """
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        return None
    for time in (1, 0):
        length = tokens.shape[time]
        if length < 3:
            continue
        following = tokens.narrow(time, 1, length - 1)
        for scored in (length, length - 1):
            shape = list(tokens.shape)
            shape[time] = scored
            arranged = _arranged(targets, shape)
            if arranged is None:
                continue
            inner = arranged.narrow(time, 0, length - 1)
            known = inner >= 0  # an ignored index is negative, or equal to what padding is
            agrees = inner == following
            own = tokens.narrow(time, 0, length - 1)
            # Every scored target is the next token or is ignored; and that is no accident of equal tokens.
            if bool((agrees | ~known).all()) and bool((agrees & (own != following)).any()):
                positions = torch.zeros_like(tokens, dtype=torch.bool)
                positions.narrow(time, 0, length - 1).copy_(agrees & known)
                return tokens, time, positions
    return None


def _arranged(targets: Tensor, shape: list[int]) -> Tensor | None:
    if list(targets.shape) == shape:
        return targets
    if targets.dim() == 1 and targets.numel() == shape[0] * shape[1]:
        return targets.reshape(shape)
    return None


def _positions(scored: Tensor, time: int) -> list[int]:
    """Positions whose predecessor is scored, spread over the sequence."""
    candidates = [int(t) + 1 for t in scored.any(dim=1 - time).nonzero().flatten().tolist()]
    step = max(1, len(candidates) // POSITIONS)
    return candidates[::step][:POSITIONS]


def _replaced(tokens: Tensor, time: int, position: int) -> Tensor:
    """The tokens with those of one position exchanged between the sequences, or with another token of the sequence."""
    changed = tokens.clone()
    here = changed.select(time, position)
    other = tokens.select(time, position).roll(1)
    before = tokens.select(time, position - 1)
    here.copy_(torch.where(other != here, other, before))
    return changed


def _by_position(
    model: nn.Module, batch: TrainingBatch, args: tuple[Any, ...], kwargs: dict[str, Any], tokens: Tensor, time: int
) -> Tensor:
    """The outputs with the shape of the tokens first.

    Raises:
        ValueError: They have no vector for each token.
    """
    assert batch.objective is not None
    output = TrainingBatch(args, kwargs).outputs(model)[batch.objective.position]
    places = tuple(tokens.shape)
    if tuple(output.shape[:2]) == places and output.dim() == 3:
        return output
    if output.dim() == 2 and len(output) == tokens.numel():
        return output.reshape(*places, -1)
    if output.dim() == 3 and (output.shape[0], output.shape[2]) == places:
        return output.movedim(1, -1)
    raise ValueError("the outputs have no vector for each token")


def _mixing(
    model: nn.Module, batch: TrainingBatch, tokens: Tensor, time: int, position: int, places: Places
) -> tuple[bool, list[Place]]:
    """The innermost part that lets a later position through: before it its inputs hold still, and its outputs move.

    Says also whether it looks both ways by its own make.
    """
    calls: list[tuple[nn.Module, list[Place], bool, bool]] = []
    plain: list[tuple[Any, Any]] = []
    hooks = []
    recording = [True]

    def seen(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        inputs = [t.clone() for t in tensors_in([args, kwargs]) if t.is_floating_point()]
        outputs = [t.clone() for t in tensors_in(output) if t.is_floating_point()]
        if recording[0]:
            plain.append((inputs, outputs))
        elif len(calls) < len(plain):
            old = plain[len(calls)]
            before = _earlier_moved(old[0], inputs, tokens, time, position)
            after = _earlier_moved(old[1], outputs, tokens, time, position)
            calls.append((module, places.called(f"{type(module).__name__} called"), before, after))

    for path, part in model.named_modules():
        if path:
            hooks.append(part.register_forward_hook(seen, with_kwargs=True))
    try:
        TrainingBatch(batch.args, batch.kwargs).outputs(model)
        recording[0] = False
        other = _replaced(tokens, time, position)
        TrainingBatch(_with(batch.args, tokens, other), _with(batch.kwargs, tokens, other)).outputs(model)
    finally:
        for handle in hooks:
            handle.remove()
    # A part ends before the one around it: the first is the innermost.
    found = next(((module, place) for module, place, before, after in calls if after and not before), None)
    if found is None:
        return False, []
    module, place = found
    both_ways = bool(getattr(module, "bidirectional", False))
    return both_ways, places.made(module) + place if both_ways else place


def _earlier_moved(before: list[Tensor], after: list[Tensor], tokens: Tensor, time: int, position: int) -> bool:
    for old, new in zip(before, after, strict=False):
        for places, axis in ((tuple(tokens.shape), time), (tuple(reversed(tokens.shape)), 1 - time)):
            if old.shape == new.shape and old.dim() >= 2 and tuple(old.shape[:2]) == places:
                if not torch.equal(old.narrow(axis, 0, position), new.narrow(axis, 0, position)):
                    return True
                break
    return False
