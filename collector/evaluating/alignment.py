"""Do inputs and targets still lie on each other after augmentation? Views of one item, masks of one image.

Everything is read from the copies of training pairs, after the run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.evaluating.scoring import sign_test
from weaklink.collector.watching.pairs import Chunk

# Batches must show one pattern of labels throughout, and so many of them.
BATCHES = 3
VIEWS = (2, 3, 4)
ROWS = 512
# Larger images are made coarser: a turn moves borders by far more than a cell.
SIDE = 48
_TURNS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("left to right", (-1,)),
    ("upside down", (-2,)),
    ("by half a turn", (-2, -1)),
)


@dataclass
class Views:
    """Labels that repeat in one pattern and inputs that do in another.

    Attributes:
        number: Views of an item.
        tiled: Whether the labels stand batch after batch (a b c a b c); the inputs then item by item (a a b b c c).
        nearest: Rows whose nearest neighbour is the view that the inputs' pattern gives them, and `as_labelled` those
            whose nearest neighbour is the one that the labels' pattern gives; of `rows`.
    """

    number: int
    tiled: bool
    nearest: int
    as_labelled: int
    rows: int
    chance: float


@dataclass
class Mirror:
    """Rows whose target lies on the input's edges once it is turned, and not as it stands.

    Attributes:
        turn: Which turn.
        turned: Rows it puts in place.
        otherwise: Rows that the next best turn would: what chance gives.
        standing: Rows whose target lies best as it stands.
        chance: Of so many turned rows, or so many standing ones, whichever is likelier.
    """

    turn: str
    turned: int
    otherwise: int
    standing: int
    rows: int
    chance: float


def views_of(chunks: list[Chunk]) -> Views | None:
    """Labels and inputs whose views stand in different patterns; None where they agree or there are none."""
    # Of the last batch that the budget had room for, only a part was copied.
    full = max((chunk.rows for chunk in chunks), default=0)
    batches = [chunk for chunk in chunks if chunk.rows == full and _labelled(chunk)]
    if len(batches) < BATCHES or _same_throughout(batches):
        return None
    for number in VIEWS:
        for tiled in (True, False):
            if all(_repeats(chunk.target, number, tiled) for chunk in batches) and not any(
                _repeats(chunk.target, number, not tiled) for chunk in batches
            ):
                return _compared(batches, number, tiled)
    return None


def _same_throughout(batches: list[Chunk]) -> bool:
    """Labels that say which view a row is (clean or corrupted, turned how far) are the same in every batch."""
    first = batches[0].target
    return all(first is not None and batch.target is not None and torch.equal(batch.target, first) for batch in batches)


def _labelled(chunk: Chunk) -> bool:
    target = chunk.target
    return target is not None and not target.is_floating_point() and target.dim() == 1 and chunk.rows >= 4


def _repeats(target: Tensor | None, number: int, tiled: bool) -> bool:
    if target is None or len(target) % number:
        return False
    grouped = target.reshape(number, -1).T if tiled else target.reshape(-1, number)
    return bool((grouped == grouped[:, :1]).all())


def _compared(batches: list[Chunk], number: int, tiled: bool) -> Views | None:
    nearest = as_labelled = beside = rows = 0
    for chunk in batches:
        flat = chunk.inputs[0].reshape(chunk.rows, -1)
        if not flat.is_floating_point() or rows + chunk.rows > ROWS:
            continue
        apart = torch.cdist(flat.double(), flat.double()).fill_diagonal_(float("inf"))
        closest = apart.argmin(1)
        place = torch.arange(chunk.rows)
        by_items, by_batch = place // number, place % (chunk.rows // number)
        given, other = (by_batch, by_items) if tiled else (by_items, by_batch)
        same_item, same_label = other[closest] == other, given[closest] == given
        # In a film every row is like the one before and the one after it, whichever pairs they are sorted into.
        period = number if tiled else chunk.rows // number
        away = (closest - place).abs()
        next_to = away < 2 if tiled else torch.isin(away % period, _around(period))
        nearest += int((same_item & ~same_label).sum())
        as_labelled += int((same_label & ~same_item).sum())
        beside += int((next_to & ~same_item).sum())
        rows += chunk.rows
    chance = sign_test(nearest, max(as_labelled, beside))
    return Views(number, tiled, nearest, as_labelled, rows, chance) if nearest > rows // 2 else None


def _around(period: int) -> Tensor:
    return torch.tensor([1, period - 1])


def mirror_of(chunks: list[Chunk]) -> Mirror | None:
    """The turn that most targets of (rows, height, width) need; None where there are no such targets of images.

    Edges of the image are correlated with borders between labels, at all shifts at once. A target that belongs to its
    image has its peak where it stands. Of rows that have not, it is counted which turn of the target peaks higher than
    the target itself: of three turns none is special by chance.
    """
    counts = dict.fromkeys((name for name, _ in _TURNS), 0)
    rows = standing = 0
    for chunk in chunks:
        found = _edges(chunk)
        if found is None or rows >= ROWS:
            continue
        image, borders = found
        usable = borders.flatten(1).any(1) & image.flatten(1).any(1)
        image, borders = image[usable], borders[usable]
        if not len(image):
            continue
        rows += len(image)
        own = _peaks(image, borders)
        away = own.flatten(1).argmax(1) != 0
        height = own.flatten(1).amax(1)
        turned = torch.stack([_peaks(image, borders.flip(axes)).flatten(1).amax(1) for _, axes in _TURNS])
        best, which = turned.max(0)
        standing += int((~away & (height > best)).sum())
        for number, (name, _) in enumerate(_TURNS):
            counts[name] += int((away & (best > height) & (which == number)).sum())
    if not rows:
        return None
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    (turn, first), (_, second) = ordered[0], ordered[1]
    chance = min(1.0, 3 * max(sign_test(first, second), sign_test(standing, second)))
    return Mirror(turn, first, second, standing, rows, chance)


def _edges(chunk: Chunk) -> tuple[Tensor, Tensor] | None:
    """Edges of the image, (rows, height, width), and borders between labels that are classes."""
    image, target, output = chunk.inputs[0], chunk.target, chunk.output
    if target is None or target.is_floating_point() or image.dim() != 4 or not image.is_floating_point():
        return None
    labels = target.squeeze(1) if target.dim() == 4 and target.shape[1] == 1 else target
    if labels.dim() != 3 or labels.shape[1:] != image.shape[2:] or min(labels.shape[1:]) < 8:
        return None
    classes = output.shape[1] if output is not None and output.dim() == 4 else 256
    known = (labels >= 0) & (labels < classes)
    borders = torch.zeros(labels.shape)
    down = (labels[:, 1:] != labels[:, :-1]) & known[:, 1:] & known[:, :-1]
    right = (labels[:, :, 1:] != labels[:, :, :-1]) & known[:, :, 1:] & known[:, :, :-1]
    # Half an edge on either side of it, so that a turned border is a border of the turned target.
    borders[:, 1:] += down
    borders[:, :-1] += down
    borders[:, :, 1:] += right
    borders[:, :, :-1] += right
    edges = torch.zeros(labels.shape)
    values = torch.nan_to_num(image)
    step_down, step_right = values.diff(dim=2).abs().sum(1), values.diff(dim=3).abs().sum(1)
    edges[:, 1:] += step_down
    edges[:, :-1] += step_down
    edges[:, :, 1:] += step_right
    edges[:, :, :-1] += step_right
    return _coarse(edges.double()), _coarse(borders.double())


def _peaks(image: Tensor, borders: Tensor) -> Tensor:
    """Correlation at every circular shift, (rows, height, width); the first entry is no shift at all.

    By Fourier matrices: at these sizes as fast as a fast transform, which a forked process cannot always use.
    """
    down, across = _fourier(image.shape[1]), _fourier(image.shape[2])
    there = (down @ image.to(torch.complex128) @ across) * (down @ borders.to(torch.complex128) @ across).conj()
    moved = (down.conj() @ there @ across.conj()).real / image[0].numel()
    return torch.round(moved, decimals=6)


def _fourier(length: int) -> Tensor:
    """The matrix of the discrete Fourier transform, (length, length)."""
    steps = torch.arange(length, dtype=torch.float64)
    angle = -2.0 * torch.pi * torch.outer(steps, steps) / length
    return torch.complex(angle.cos(), angle.sin())


def _coarse(values: Tensor) -> Tensor:
    """Sums over square cells, so that no more than `SIDE` of them lie along a side."""
    cell = -(-max(values.shape[1:]) // SIDE)
    return functional.avg_pool2d(values[:, None], cell)[:, 0] if cell > 1 else values
