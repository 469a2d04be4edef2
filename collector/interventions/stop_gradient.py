"""A fixed target where a loss draws two learned sides together: no gradient through one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings
from weaklink.collector.watching.graph import leaves_of

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

COMPARISONS = ("cosine_similarity", "mse_loss", "smooth_l1_loss", "l1_loss", "huber_loss")
PRODUCTS = ("mul", "multiply", "__mul__")


class StopGradient(Intervention):
    """One side of a comparison, or of a product, on that line is detached where both sides carry a history.

    `fewer` is the side that fewer parameters made: the one without the predictor. Where both have as many it is the
    second, which is where a target stands.
    """

    name = "stop_gradient"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        places: tuple[tuple[Any, tuple[str, ...]], ...] = (
            (functional, COMPARISONS),
            (torch, (*COMPARISONS, *PRODUCTS)),
            (Tensor, PRODUCTS),
        )
        for owner, names in places:
            replace(owner, names, self._compare)

    @unseen_by_warnings
    def _compare(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("x1", "x2") if original.__name__ == "cosine_similarity" else ("input", "target")
        names = ("input", "other") if original.__name__ in PRODUCTS else names
        sides = [argument(args, kwargs, position, name) for position, name in enumerate(names)]
        if not all(isinstance(side, Tensor) and side.requires_grad for side in sides) or not self._here():
            return original(*args, **kwargs)
        if sides[0].shape != sides[1].shape:
            return original(*args, **kwargs)
        chosen = self._chosen(*sides)
        self.note_changed(self._watcher, str(self.parameters["site"]), f"{names[chosen]} of {original.__name__} fixed")
        with self._watcher.looking_away():  # this cut is ours
            fixed = sides[chosen].detach()
        args, kwargs = with_argument(args, kwargs, chosen, names[chosen], fixed)
        return original(*args, **kwargs)

    def _here(self) -> bool:
        site = self._watcher.code.site("compared")
        return site is not None and site.place == self.parameters["site"]

    def _chosen(self, first: Tensor, second: Tensor) -> int:
        if self.parameters["side"] != "fewer":
            return int(self.parameters["side"] == "second")
        made_by = [len(leaves_of(side.grad_fn, self._watcher.parameters)) for side in (first, second)]
        return 0 if made_by[0] < made_by[1] else 1
