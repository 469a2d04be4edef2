"""Would the evaluated inputs be answered as training's are, if they were prepared like those?

Closed list of preparations: each channel brought to training's mean and spread, all channels together, channels in
another order. One that is right makes the model as good as it is in training; one that is not makes it no better.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

# All orders of so many channels are tried.
PERMUTED_CHANNELS = 4


@dataclass
class Moments:
    """Mean and standard deviation of each channel, and those of every batch: (channels,) and (batches, channels)."""

    mean: Tensor
    std: Tensor
    batch_mean: Tensor
    batch_std: Tensor


def channel_axis(shape: torch.Size) -> int:
    """Images have their channels second, tables their columns; of sequences the shorter dimension holds them."""
    if len(shape) == 3 and shape[2] < shape[1]:
        return 2
    return 1


def moments(batches: list[Tensor]) -> Moments:
    """Of (rows, channels, ...) batches, in float64."""
    axis = channel_axis(batches[0].shape)
    flat = [batch.double().movedim(axis, 0).reshape(batch.shape[axis], -1) for batch in batches]
    joint = torch.cat(flat, dim=1)
    return Moments(
        joint.mean(1),
        joint.std(1, correction=0),
        torch.stack([values.mean(1) for values in flat]),
        torch.stack([values.std(1, correction=0) for values in flat]),
    )


def outside(train: Moments, evaluation: Moments) -> list[int]:
    """Channels whose mean or spread lies outside of all of training's batches, in every batch of the evaluation."""
    found = torch.zeros(len(train.mean), dtype=torch.bool)
    for theirs, ours in ((train.batch_mean, evaluation.batch_mean), (train.batch_std, evaluation.batch_std)):
        low, high = theirs.amin(0), theirs.amax(0)
        found |= (ours < low).all(0) | (ours > high).all(0)
    return [int(channel) for channel in found.nonzero().flatten()]


@dataclass
class Preparation:
    """One way to prepare the evaluated inputs: where each channel comes from, then a factor and an offset for each.

    `moves`: whether it brings them to another mean or spread, and does not only exchange channels.
    """

    name: str
    scale: Tensor
    offset: Tensor
    order: list[int]
    moves: bool

    def __call__(self, inputs: Tensor) -> Tensor:
        axis = channel_axis(inputs.shape)
        moved = inputs.double().movedim(axis, -1)[..., self.order]
        return (moved * self.scale + self.offset).movedim(-1, axis).to(inputs.dtype)


def preparations(train: Moments, evaluation: Moments) -> list[Preparation]:
    """The closed list. What training does not vary is left as it is."""
    same = list(range(len(train.mean)))
    found = [_brought(train, evaluation, same, "each channel brought to training's mean and spread")]
    if len(same) > 1:
        found.append(_brought_together(train, evaluation))
    if 1 < len(same) <= PERMUTED_CHANNELS:
        for order in map(list, itertools.permutations(same)):
            if order != same:
                found += _exchanged(train, evaluation, order)
    return found


def _brought(train: Moments, evaluation: Moments, order: list[int], name: str) -> Preparation:
    mean, std = evaluation.mean[order], evaluation.std[order]
    varied = (train.std > 0) & (std > 0)
    scale = torch.where(varied, train.std / std.clamp(min=1e-300), torch.ones_like(std))
    offset = torch.where(varied, train.mean - mean * scale, torch.zeros_like(mean))
    return Preparation(name, scale, offset, order, True)


def _brought_together(train: Moments, evaluation: Moments) -> Preparation:
    factor = _spread(train) / _spread(evaluation).clamp(min=1e-300)
    scale = torch.ones_like(train.mean) * factor
    offset = torch.ones_like(train.mean) * (train.mean.mean() - evaluation.mean.mean() * factor)
    name = "all channels brought to training's mean and spread"
    return Preparation(name, scale, offset, list(range(len(scale))), True)


def _exchanged(train: Moments, evaluation: Moments, order: list[int]) -> list[Preparation]:
    """An order of channels brought to training's mean and spread; as it is only where it lies no further from those."""
    name = f"channels in the order {', '.join(map(str, order))}"
    found = [_brought(train, evaluation, order, f"{name}, each brought to training's mean and spread")]
    if _apart(train, evaluation, order) <= _apart(train, evaluation, list(range(len(order)))):
        ones, zeros = torch.ones_like(train.mean), torch.zeros_like(train.mean)
        found.append(Preparation(name, ones, zeros, order, False))
    return found


def _apart(train: Moments, evaluation: Moments, order: list[int]) -> float:
    """Squared distances of the means and spreads of channels, in units of training's joint spread."""
    means = (train.mean - evaluation.mean[order]).square().sum()
    stds = (train.std - evaluation.std[order]).square().sum()
    return float((means + stds) / _spread(train).square().clamp(min=1e-300))


def _spread(of: Moments) -> Tensor:
    """Standard deviation over all channels together."""
    return (of.std.square().mean() + of.mean.var(correction=0)).sqrt()
