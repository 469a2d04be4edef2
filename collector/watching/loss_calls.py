"""Calls of torch's own losses: what was scored against which target, in training and in evaluation.

Under `no_grad` there is no graph to read a target from, and a mask that multiplies an unreduced loss leaves no ignored
index. So the functions below `torch.nn.functional` are wrapped, where everybody's losses arrive (compilers put the
public ones into their graphs whole, and never look at these).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.watching.context import is_traced, is_transformed, unseen_by_warnings
from weaklink.collector.watching.evaluated import EvaluationReader
from weaklink.collector.watching.part import Part, RootCall
from weaklink.collector.watching.prior import PriorReader
from weaklink.collector.watching.supervision import SupervisionReader
from weaklink.collector.watching.tape import BackwardSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

_FUNCTIONS = (
    (getattr(torch._C, "_nn", None), "cross_entropy_loss"),
    (getattr(torch._C, "_nn", None), "nll_loss_nd"),
    (getattr(torch._C, "_nn", None), "mse_loss"),
    (getattr(torch._C, "_nn", None), "l1_loss"),
    (getattr(torch._C, "_nn", None), "smooth_l1_loss"),
    (getattr(torch._C, "_nn", None), "huber_loss"),
    (getattr(torch._C, "_nn", None), "binary_cross_entropy"),
    (torch, "binary_cross_entropy_with_logits"),
)


@dataclass
class CalledLoss:
    """One call, as long as its tensors are alive.

    `ignored` is the label that is no class, of a loss over class indices.
    """

    name: str
    scores: Tensor
    target: Tensor
    weight: Tensor | None
    ignored: int | None

    @property
    def indexed(self) -> bool:
        return self.ignored is not None and not self.target.is_floating_point()


class LossCalls(Part):
    """Hands every call to those who want it."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self._evaluation = EvaluationReader(watcher)
        self._supervision = SupervisionReader(watcher)
        self._prior = PriorReader(watcher)

    def install(self) -> None:
        for owner, name in _FUNCTIONS:
            if owner is not None and hasattr(owner, name):
                self.watcher.wrap(owner, name, self._around(name))

    def root_called(self, call: RootCall) -> None:
        if call.with_gradients:
            if call.sampled:
                self._supervision.root_called(call)
                self._prior.root_called(call)
        else:
            self._evaluation.root_called(call)

    def answers_compared(self, one: Tensor, other: Tensor) -> None:
        """Two tensors were compared after an evaluation call: predictions and targets, maybe."""
        self._evaluation.compared(one, other)

    def criterion_called(self, args: tuple[Any, ...]) -> None:
        self._supervision.criterion_called(args)

    def backward_ended(self, sample: BackwardSample | None) -> None:
        self._supervision.backward_ended()
        self._prior.backward_ended()

    def finish(self) -> None:
        self._evaluation.finish()
        self._prior.finish()

    def _around(self, name: str) -> Callable[..., Any]:
        @unseen_by_warnings
        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not is_traced():
                self.watcher.guarded(self._called)(name, args, kwargs)
            return original(*args, **kwargs)

        return around

    def _called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        graded = torch.is_grad_enabled()
        if graded and not self.watcher.sampling:
            return
        scores, target = (args[position] if len(args) > position else None for position in (0, 1))
        if not isinstance(scores, Tensor) or not isinstance(target, Tensor):
            return
        if is_transformed(scores) or is_transformed(target) or scores.is_meta:
            return
        by_class = name in ("cross_entropy_loss", "nll_loss_nd")
        weight = args[2] if by_class and len(args) > 2 and isinstance(args[2], Tensor) else None
        ignored = args[4] if by_class and len(args) > 4 and isinstance(args[4], int) else None
        loss = CalledLoss(name, scores, target, weight, ignored)
        if graded:
            self._supervision.called(loss)
            self._evaluation.trained(loss)
            self._prior.called(loss)
        else:
            self._evaluation.called(loss)
