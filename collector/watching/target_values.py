"""Targets against the numbers that a loss of torch's own has a meaning for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import is_traced, is_transformed, unseen_by_warnings
from weaklink.collector.watching.part import Part

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

KEPT = 64
# Of losses whose targets are 1 and -1, the places of the compared tensors and of the target.
_SIGNED: tuple[tuple[Any, str, tuple[int, ...], int], ...] = (
    (torch, "cosine_embedding_loss", (0, 1), 2),
    (torch, "margin_ranking_loss", (0, 1), 2),
    (torch, "hinge_embedding_loss", (0,), 1),
    (getattr(torch._C, "_nn", None), "soft_margin_loss", (0,), 1),
)
_REDUCED = (1, 2)  # mean, sum


@dataclass
class SignedTargets:
    """One call of a loss whose targets are meant to be 1 or -1.

    Attributes:
        zeros: Targets that are 0; `ones`: that are 1; `negative`: that are -1; `others`: all the rest.
        both: Whether every compared tensor has a history, so that training moves it.
    """

    name: str
    step: int
    site: Site | None
    zeros: int
    ones: int
    negative: int
    others: int
    both: bool


@dataclass
class Beyond:
    """One call of a binary cross entropy, reduced and unweighted, with targets outside of [0, 1]."""

    step: int
    site: Site | None
    outside: int
    targets: int
    low: float
    high: float


@dataclass
class TargetValuesRecord:
    """Sampled calls in training, of such losses."""

    signed: list[SignedTargets] = field(default_factory=list)
    beyond: list[Beyond] = field(default_factory=list)


class TargetValuesPart(Part):
    """Counts values in sampled steps."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.record = self.tape.record(TargetValuesRecord)

    def install(self) -> None:
        """Wrap the functions where everybody's losses arrive."""
        for owner, name, compared, place in _SIGNED:
            if owner is not None and hasattr(owner, name):
                self.watcher.wrap(owner, name, self._around_signed(name, compared, place))
        self.watcher.wrap(torch, "binary_cross_entropy_with_logits", self._binary)

    def _around_signed(self, name: str, compared: tuple[int, ...], place: int) -> Callable[..., Any]:
        @unseen_by_warnings
        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self._wanted(args, place):
                self.watcher.guarded(self._note_signed)(name, [args[p] for p in compared], args[place])
            return original(*args, **kwargs)

        return around

    def _wanted(self, args: tuple[Any, ...], place: int) -> bool:
        if not self.watcher.sampling or not torch.is_grad_enabled() or is_traced() or len(args) <= place:
            return False
        return isinstance(args[place], Tensor) and not is_transformed(args[place]) and not args[place].is_meta

    def _note_signed(self, name: str, compared: list[Tensor], target: Tensor) -> None:
        if len(self.record.signed) >= KEPT:
            return
        zeros, ones, negative = (int((target == value).sum()) for value in (0, 1, -1))
        self.record.signed.append(
            SignedTargets(
                name,
                self.tape.steps + 1,
                self.watcher.code.site("loss called"),
                zeros,
                ones,
                negative,
                target.numel() - zeros - ones - negative,
                all(tensor.requires_grad for tensor in compared),
            )
        )

    @unseen_by_warnings
    def _binary(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._wanted(args, 1):
            weight = args[2] if len(args) > 2 else kwargs.get("weight")
            reduction = args[4] if len(args) > 4 else kwargs.get("reduction")
            # An unreduced loss is masked afterwards, a weight may be zero: -1 is then a label that nobody knows.
            if weight is None and reduction in _REDUCED:
                self.watcher.guarded(self._note_binary)(args[1])
        return original(*args, **kwargs)

    def _note_binary(self, target: Tensor) -> None:
        if len(self.record.beyond) >= KEPT or not target.numel() or not target.is_floating_point():
            return
        values = target.detach().float()
        low, high = float(values.min()), float(values.max())
        rounding = 16 * torch.finfo(target.dtype).eps
        if low < -rounding or high > 1 + rounding:
            outside = int(((values < -rounding) | (values > 1 + rounding)).sum())
            site = self.watcher.code.site("loss called")
            self.record.beyond.append(Beyond(self.tape.steps + 1, site, outside, target.numel(), low, high))
