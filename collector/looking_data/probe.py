"""Cheap held-out probes: can a target be read off its input any better than a permuted target can?

Two of them: ridge regression on standardised features, and the mean target of the nearest neighbours (Cover and Hart,
1967), fitted on some rows and held against others. Scored by the area under the ROC curve, one class against the rest
(Hanley and McNeil, 1982), which a rare class does not distort; numbers by correlation. What is permuted are the targets
of the rows that it is held against: the predictions stay, so that a permutation costs one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PERMUTATIONS = 300
PROBED_ROWS = 2048
# Below this a fold holds too few rows of two classes to tell anything.
LEAST_ROWS = 48
FEATURES = 128
VOCABULARY = 512
CLASSES = 10
NUMBERS = 4
NEIGHBOURS = 5


@dataclass
class Scores:
    """One probe's held-out score for the targets as they are, and for each permutation of them."""

    given: float
    permuted: Tensor

    @property
    def readable(self) -> bool:
        """Whether it beats every permutation."""
        return self.given > float(self.permuted.max())

    @property
    def inverted(self) -> bool:
        """Whether it is worse than every permutation: it reads the opposite."""
        return self.given < float(self.permuted.min())


def features_of(inputs: list[Tensor]) -> Tensor | None:
    """(rows, features) in float64, each standardised; None where there is nothing to read.

    Floating inputs are flattened, token ids counted, single ids spread over columns. Many columns are projected on
    fewer at random (Johnson and Lindenstrauss, 1984).
    """
    parts = [part for tensor in inputs if (part := _features(tensor)) is not None]
    if not parts:
        return None
    values = torch.cat(parts, dim=1)
    values = torch.where(torch.isfinite(values), values, 0.0)
    values = _standardised(values)
    if values.shape[1] > FEATURES:
        drawn = torch.randn(values.shape[1], FEATURES, generator=_generator(), dtype=torch.float64, device="cpu")
        values = _standardised(values @ drawn)
    return values if values.shape[1] else None


def targets_of(targets: Tensor) -> Tensor | None:
    """(rows, columns) in float64: one column a class, or the numbers themselves; None for anything richer.

    Two different numbers count as classes. Of many classes the most frequent ones are kept.
    """
    flat = targets.reshape(len(targets), -1)
    values = torch.unique(flat[:, 0]) if flat.shape[1] == 1 else flat.new_empty(0)
    if len(values) == 2 or (len(values) > 2 and not flat.is_floating_point() and 2 * len(values) <= len(flat)):
        counts = (flat == values[:, None, None].reshape(1, -1)).sum(dim=0)
        kept = counts.argsort(descending=True, stable=True)[:CLASSES]
        return (flat == values[kept].reshape(1, -1)).double()
    if not flat.is_floating_point() or not 1 <= flat.shape[1] <= NUMBERS or not bool(torch.isfinite(flat).all()):
        return None
    return flat.double() if bool((flat.double().std(dim=0) > 0).all()) else None


def is_classes(columns: Tensor) -> bool:
    """Whether columns of `targets_of` stand for classes."""
    return bool(((columns == 0) | (columns == 1)).all())


class Probe:
    """One linear map from the targets of the rows it is fitted on to predictions for the rows it is held against."""

    def __init__(self, fitted: Tensor, held: Tensor, kind: str) -> None:
        self.kind = kind
        if kind == "ridge":
            gram = fitted.T @ fitted
            penalty = torch.eye(len(gram), dtype=torch.float64, device="cpu") * max(len(fitted), 1) ** 0.5
            self._solved = torch.linalg.solve(gram + penalty, fitted.T)
            self._held = held
        else:
            near = min(NEIGHBOURS, len(fitted))
            self._nearest = torch.cdist(held, fitted).topk(near, dim=1, largest=False).indices

    def predict(self, targets: Tensor) -> Tensor:
        """(held rows, columns) from (fitted rows, columns)."""
        if self.kind == "ridge":
            predicted: Tensor = self._held @ (self._solved @ (targets - targets.mean(dim=0)))
            return predicted
        return targets[self._nearest].mean(dim=1)


KINDS = ("ridge", "neighbours")


def halves(rows: int) -> tuple[Tensor, Tensor]:
    """Two halves of the rows, drawn once and for all."""
    order = torch.randperm(rows, generator=_generator(), device="cpu")
    return order[: rows // 2], order[rows // 2 :]


def permutations(rows: int, count: int = PERMUTATIONS) -> Tensor:
    """(count, rows): orders drawn at random, the same ones each time."""
    generator = _generator()
    return torch.stack([torch.randperm(rows, generator=generator, device="cpu") for _ in range(count)])


def probed(probe: Probe, fitted: Tensor, held: Tensor) -> Scores:
    """A probe's score for targets (rows, columns) of the rows it was fitted on and of those it is held against."""
    predicted = probe.predict(fitted)
    orders = torch.cat([torch.arange(len(held), device="cpu")[None], permutations(len(held))])
    score = _area if is_classes(held) else _correlation
    found = torch.cat([score(predicted, held[part]) for part in torch.split(orders, 50)])
    return Scores(float(found[0]), found[1:])


def both_ways(features: Tensor, columns: Tensor, sides: tuple[Tensor, Tensor], kind: str) -> list[Scores]:
    """A probe fitted on the first side and held against the second, and the other way around."""
    first, second = sides
    return [
        probed(Probe(features[a], features[b], kind), columns[a], columns[b])
        for a, b in ((first, second), (second, first))
    ]


def _area(predicted: Tensor, targets: Tensor) -> Tensor:
    """(orders,): mean over the classes that are there and not alone, each weighted by its rows."""
    ranks = _ranks(predicted)
    positive = targets[0].sum(dim=0)
    negative = len(predicted) - positive
    above = torch.einsum("rc,orc->oc", ranks, targets) - positive * (positive + 1) / 2
    weight = torch.where((positive > 0) & (negative > 0), positive, 0.0)
    area = above / (positive * negative).clamp(min=1.0)
    return (area * weight).sum(dim=1) / weight.sum() if bool(weight.any()) else torch.full((len(targets),), 0.5)


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 1 along the rows, equal ones in the middle of their places."""
    found = torch.empty_like(values)
    for column in range(values.shape[1]):
        _, inverse, counts = torch.unique(values[:, column], return_inverse=True, return_counts=True)
        last = counts.cumsum(0).double()
        found[:, column] = (last - (counts.double() - 1) / 2)[inverse]
    return found


def _correlation(predicted: Tensor, targets: Tensor) -> Tensor:
    """(orders,): mean over the columns."""
    first, second = predicted - predicted.mean(dim=0), targets - targets.mean(dim=1, keepdim=True)
    product = torch.einsum("rc,orc->oc", first, second)
    size = (first.square().sum(dim=0) * second.square().sum(dim=1)).sqrt()
    return torch.where(size > 0, product / size.clamp(min=1e-300), 0.0).mean(dim=1)


def _features(tensor: Tensor) -> Tensor | None:
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        return tensor.reshape(len(tensor), -1).double()
    if tensor.dim() > 2 and tensor.dtype == torch.uint8:
        return tensor.reshape(len(tensor), -1).double()
    flat = tensor.reshape(len(tensor), -1).long()
    low = int(flat.min())
    size = int(flat.max()) - low + 1
    if size > VOCABULARY:
        return None
    counts = torch.zeros(len(flat), size, dtype=torch.float64, device="cpu")
    return counts.scatter_add_(1, flat - low, torch.ones(flat.shape, dtype=torch.float64, device="cpu"))


def _standardised(values: Tensor) -> Tensor:
    values = values - values.mean(dim=0)
    spread = values.std(dim=0, correction=0)
    return values[:, spread > 0] / spread[spread > 0]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
