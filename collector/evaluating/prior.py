"""Does a vector of class weights or class priors stand in the order of the classes it is for?

Weights by inverse frequency and logit offsets by log frequency are a power of the class counts. The order is wrong
where that holds only after both are sorted: then the numbers are those of other classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# With fewer classes nearly any vector is a power of the sorted counts.
LEAST_CLASSES = 4
# The sorted vector fits unless that would be rarer than the first; as it stands it does not if rarer than the second.
FITS = 1e-3
MISFITS = 1e-9


@dataclass
class PriorFit:
    """How well a vector explains the counts, as it stands and sorted: chances of so bad a fit.

    `order`: the place of each class's number in the vector if both are sorted.
    """

    classes: int
    rows: int
    as_it_stands: float
    when_sorted: float
    order: tuple[int, ...] = ()

    @property
    def fits(self) -> bool:
        return self.as_it_stands > FITS

    @property
    def misplaced(self) -> bool:
        return self.as_it_stands < MISFITS and self.when_sorted > FITS


def fit_prior(logarithms: Tensor, counts: Tensor, falling: bool) -> PriorFit | None:
    """Fit counts by a power of a vector, by likelihood.

    Args:
        logarithms: Of the weights, or the logit offsets themselves, (classes,).
        counts: Targets of each class that were seen, (classes,).
        falling: Whether the vector is meant to fall with the counts, as inverse frequencies do.

    Returns:
        None where there are too few classes, one was never seen, or the vector is constant.
    """
    known, seen = logarithms.double(), counts.double()
    usable = known.shape == seen.shape and len(known) >= LEAST_CLASSES and bool((seen > 0).all())
    if not usable or not bool(torch.isfinite(known).all()) or float(known.std()) == 0.0:
        return None
    ordered, places = known.sort(descending=falling)
    ascending, classes = seen.sort()
    order = torch.empty_like(places)
    order[classes] = places
    chances = _chance(known, seen), _chance(ordered, ascending)
    return PriorFit(len(known), int(seen.sum()), *chances, tuple(order.tolist()))


def _chance(known: Tensor, seen: Tensor) -> float:
    """Chance of so large a deviance of the best power, from the chi-squared distribution."""
    scaled, total, power = (known - known.mean()) / known.std(), seen.sum(), 0.0
    for _ in range(100):  # Newton's method on a concave function of one number
        shares = (power * scaled).softmax(0)
        mean = (shares * scaled).sum()
        slope = (seen * scaled).sum() - total * mean
        bend = total * (shares * (scaled - mean).square()).sum()
        step = float(slope / bend.clamp(min=1e-12))
        power += max(-1.0, min(1.0, step))
    expected = total * (power * scaled).softmax(0)
    deviance = 2.0 * (seen * (seen / expected).log()).sum()
    freedom = torch.tensor((len(seen) - 2) / 2.0, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, deviance.clamp(min=0.0) / 2.0))
