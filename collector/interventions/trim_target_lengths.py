"""Lengths of targets without their padding: the one change that tells scored padding from everything else."""

from __future__ import annotations

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


class TrimTargetLengths(Intervention):
    """The length of a padded target of a CTC loss ends before the blanks that end it. A blank is never a label."""

    name = "trim_target_lengths"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        replace(functional, ("ctc_loss",), self._loss)

    @unseen_by_warnings
    def _loss(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        targets, given = argument(args, kwargs, 1, "targets"), argument(args, kwargs, 3, "target_lengths")
        blank = int(argument(args, kwargs, 4, "blank", 0))
        if not isinstance(targets, Tensor) or targets.dim() != 2:
            return original(*args, **kwargs)
        lengths = given if isinstance(given, Tensor) else torch.tensor(given, device="cpu")
        trimmed = _trimmed(targets, lengths, blank)
        if torch.equal(trimmed, lengths):
            return original(*args, **kwargs)
        self.note_changed(self._watcher, "ctc_loss", "target lengths without the blanks at their end")
        other = trimmed if isinstance(given, Tensor) else tuple(trimmed.tolist())
        args, kwargs = with_argument(args, kwargs, 3, "target_lengths", other)
        return original(*args, **kwargs)


def _trimmed(targets: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """Up to the last label within its length that is no blank; (rows,) like the lengths."""
    places = torch.arange(1, targets.shape[1] + 1, device=targets.device)
    labels = (targets != blank) & (places <= lengths.to(targets.device)[:, None])
    return (labels * places).amax(1).to(lengths)
