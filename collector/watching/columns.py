"""Statistics of rows by column or by channel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Columns:
    """One entry for each column of (rows, columns), each channel of (rows, channels, ...), all in float64.

    Attributes:
        count: Finite entries.
        nonfinite: Entries that are NaN or infinite.
        zero: Share of the finite entries that are exactly zero.
        mean, std, low, high: Over the finite entries; zero where there are none.
        spread: Standard deviation over rows of a row's own mean of that channel: for plain columns the same as `std`.
    """

    count: Tensor
    nonfinite: Tensor
    zero: Tensor
    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor
    spread: Tensor


def columns(rows: Tensor) -> Columns:
    """Statistics of (rows, columns) or (rows, channels, ...); of (rows,) one column."""
    values = rows.double().reshape(len(rows), rows.shape[1] if rows.dim() > 1 else 1, -1)
    finite = torch.isfinite(values)
    known = torch.where(finite, values, 0.0)
    count = finite.sum(dim=(0, 2))
    some = count.clamp(min=1)
    mean = known.sum(dim=(0, 2)) / some
    apart = torch.where(finite, values - mean[:, None], 0.0)
    by_row = apart.sum(dim=2) / finite.sum(dim=2).clamp(min=1)
    empty = count == 0
    return Columns(
        count,
        (~finite).sum(dim=(0, 2)),
        ((values == 0.0) & finite).sum(dim=(0, 2)) / some,
        mean,
        ((apart * apart).sum(dim=(0, 2)) / some).sqrt(),
        torch.where(finite, values, float("inf")).amin(dim=(0, 2)).masked_fill(empty, 0.0),
        torch.where(finite, values, float("-inf")).amax(dim=(0, 2)).masked_fill(empty, 0.0),
        by_row.std(dim=0, correction=0),
    )
