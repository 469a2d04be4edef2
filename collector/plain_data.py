"""Values as plain data: containers, numbers, texts and tensors on the host, for `torch.load(weights_only=True)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_ATOMS = (type(None), bool, int, float, complex, str, bytes)


class NotPlainError(Exception):
    """A value that only its own code could build again; its message names the type."""


def plain(value: Any, keep: Callable[[Tensor], Tensor]) -> Any:
    """A copy in which every tensor is what `keep` makes of it.

    Raises:
        NotPlainError: It holds something else than containers, numbers, texts and tensors.
    """
    if isinstance(value, Tensor):
        return keep(value)
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, Mapping):
        return {key: plain(inner, keep) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(inner, keep) for inner in value)
    if isinstance(value, list):
        return [plain(inner, keep) for inner in value]
    if isinstance(value, (torch.dtype, torch.device, torch.Size)):
        return value
    raise NotPlainError(f"a {type(value).__module__}.{type(value).__qualname__} cannot be kept as plain data")


def in_place_of(kept: Any, live: Any) -> Any:
    """Kept values in the places of live ones: tensors on the devices of those that they replace.

    Raises:
        NotPlainError: The two are not built alike.
    """
    if isinstance(kept, Tensor) and isinstance(live, Tensor):
        if kept.dtype != live.dtype or kept.dim() != live.dim():
            raise NotPlainError(f"a tensor of {live.dtype} with {live.dim()} dimensions stands where another was")
        return kept.to(live.device).requires_grad_(live.requires_grad and live.is_leaf)
    if isinstance(kept, dict) and isinstance(live, Mapping) and kept.keys() == live.keys():
        return {key: in_place_of(inner, live[key]) for key, inner in kept.items()}
    if isinstance(kept, (tuple, list)) and isinstance(live, (tuple, list)) and len(kept) == len(live):
        inner = [in_place_of(one, other) for one, other in zip(kept, live, strict=True)]
        return tuple(inner) if isinstance(kept, tuple) else inner
    if type(kept) is type(live) and not isinstance(kept, (Tensor, dict, tuple, list)):
        return kept
    raise NotPlainError(f"a {type(live).__name__} stands where a {type(kept).__name__} was")
