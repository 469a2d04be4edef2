"""Holds what sums up a whole sequence while one of its tokens changes.

In an autoencoder the decoder is fed the sentence word by word, and a code of the whole sentence beside it: its outputs
move with words that are still to come, and are meant to. All of that goes through tensors that have no place for each
token. With these held at what they were, the outputs move no more; those of a model that looks ahead at each place do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

# Results of one forward that are kept, in bytes.
KEPT_BYTES = 64 * 1024 * 1024


class HoldSummaries(TorchFunctionMode):
    """Keeps results without a place for each token in the first forward, and gives them back in the second.

    Enter it once for each: `with mode: first()`, then `with mode: second()`.

    Args:
        rows, positions: The sequences' number and length.
    """

    def __init__(self, rows: int, positions: int) -> None:
        super().__init__()
        self._rows = rows
        self._positions = positions
        self._kept: list[tuple[Any, list[Tensor | None]]] = []
        self._next: int | None = None
        self._left = KEPT_BYTES

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._next = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        parts = [result] if isinstance(result, Tensor) else list(result) if type(result) in (tuple, list) else []
        if self._next is None:
            self._kept.append((func, [self._copy(part) for part in parts]))
            return result
        kept = self._kept[self._next] if self._next < len(self._kept) else None
        self._next += 1
        if kept is None or kept[0] is not func or len(kept[1]) != len(parts):
            return result  # the forward goes another way from here on, and holds nothing that would not fit
        held = [old if _fits(old, new) else new for old, new in zip(kept[1], parts, strict=True)]
        return result if not held else held[0] if isinstance(result, Tensor) else type(result)(held)

    def _copy(self, part: Any) -> Tensor | None:
        if not isinstance(part, Tensor) or not part.is_floating_point() or self._has_places(part):
            return None
        self._left -= part.numel() * part.element_size()
        return part.detach().clone() if self._left > 0 else None

    def _has_places(self, tensor: Tensor) -> bool:
        """Whether it has an entry for each token: (B, T, D), (T, B, D), (B, heads, T, D), (B * T, D), (B, C, T)."""
        if tensor.dim() < 2:
            return False
        leading = math.prod(tensor.shape[:-1])
        packed = tensor.dim() == 2 and leading > self._rows
        channels_first = tensor.shape[-1] == self._positions and leading % self._rows == 0
        return packed or channels_first or leading % (self._rows * self._positions) == 0


def _fits(old: Tensor | None, new: Any) -> bool:
    return old is not None and isinstance(new, Tensor) and old.shape == new.shape
