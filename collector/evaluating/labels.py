"""Are the evaluated labels numbered otherwise than training's? Predictions then fit them after renumbering."""

from __future__ import annotations

import torch
from torch import Tensor

CLASS_LIMIT = 200


def renumbering(guess: Tensor, target: Tensor, classes: int) -> dict[int, int] | None:
    """Which label stands with each predicted class most often, where those that differ are a permutation.

    Args:
        guess: Predicted classes, (n,).
        target: Labels, (n,).
        classes: How many there are.

    Returns:
        Only the classes that are renumbered; None where there are none, or they do not swap among themselves.
    """
    inside = (target >= 0) & (target < classes)
    table = torch.bincount(guess[inside] * classes + target[inside], minlength=classes * classes)
    table = table.reshape(classes, classes)
    found: dict[int, int] = {}
    for predicted in range(classes):
        best = int(table[predicted].argmax())
        if table[predicted, best] > table[predicted, predicted]:
            found[predicted] = best
    return found if found and set(found) == set(found.values()) else None


def renumbered(guess: Tensor, numbers: dict[int, int]) -> Tensor:
    """Predictions with those numbers exchanged."""
    answer = guess.clone()
    for old, new in numbers.items():
        answer[guess == old] = new
    return answer
