"""The losses that torch ships, and an intervention on the targets that they are called with."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# Where the target stands among the arguments; it is called `target` in all of them. Not the CTC loss: the lengths of
# its targets are arguments of their own.
LOSSES = {
    **dict.fromkeys(
        ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"), 1
    ),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), 1),
    **dict.fromkeys(("poisson_nll_loss", "gaussian_nll_loss", "soft_margin_loss", "hinge_embedding_loss"), 1),
    **dict.fromkeys(("multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss"), 1),
    **dict.fromkeys(("cosine_embedding_loss", "margin_ranking_loss", "linear_cross_entropy"), 2),
}


class OtherTargets(Intervention):
    """Each loss gets other targets than the script gives it. Losses that the script computes by hand are not seen."""

    how: str

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        for name, position in LOSSES.items():
            replace(functional, (name,), functools.partial(self._loss, name, position))

    @abstractmethod
    def other(self, targets: Tensor) -> Tensor | None:
        """What takes the targets' place, of the same shape, kind and device; None leaves them."""

    @unseen_by_warnings
    def _loss(
        self,
        name: str,
        position: int,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        targets = argument(args, kwargs, position, "target")
        other = self.other(targets) if isinstance(targets, Tensor) and not targets.is_meta else None
        # Compared until they first differ: from then on the change has applied, and a comparison would only cost.
        if other is None or (name not in self.report.changed and torch.equal(other, targets)):
            return original(*args, **kwargs)
        self.note_changed(self._watcher, name, self.how)
        args, kwargs = with_argument(args, kwargs, position, "target", other)
        return original(*args, **kwargs)
