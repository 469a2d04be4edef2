"""Where a hook finds itself: inside a compiler, a transformation, another step; and modules whose mode matters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.optim.lr_scheduler as lr_scheduler
import torch.optim.optimizer as optimizer_module
from torch import Tensor, nn

from weaklink.collector.watching.sites import UNSEEN

_OPTIMIZER_FILE = str(optimizer_module.__file__)

Callable_ = TypeVar("Callable_", bound=Callable[..., Any])


def unseen_by_warnings(function: Callable_) -> Callable_:
    """Take this frame out of what `warnings.warn(stacklevel=2)` counts, so that it still names the user's line.

    Python leaves out frames of its import system, known by these two words in the file name.
    """
    plain: Any = function
    plain.__code__ = plain.__code__.replace(co_filename=UNSEEN)
    return function


def scheduler_classes() -> list[type]:
    """torch's schedulers that have a `step` of their own."""
    return [
        value
        for value in vars(lr_scheduler).values()
        if isinstance(value, type) and issubclass(value, lr_scheduler.LRScheduler) and "step" in vars(value)
    ]


def inside_another_step() -> bool:
    """Whether two of torch's wrappers of `step` are on the stack: a count of our own would be off after a raise."""
    return _steps_on_the_stack(2) > 1


def inside_a_step() -> bool:
    """Whether an optimizer's step is on the stack: what its closure does, for one."""
    return _steps_on_the_stack(1) > 0


def _steps_on_the_stack(enough: int) -> int:
    frame, found = sys._getframe(2), 0
    while frame is not None and found < enough:
        code = frame.f_code
        found += code.co_name == "wrapper" and code.co_filename == _OPTIMIZER_FILE
        frame = frame.f_back  # type: ignore[assignment]
    return found


def is_traced() -> bool:
    """Whether the call is being recorded by a compiler: what our hooks read would become part of the program."""
    if torch.compiler.is_compiling() or bool(torch._C._get_tracing_state()):
        return True
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())  # type: ignore[no-untyped-call]


def is_transformed(tensor: Tensor) -> bool:
    """Whether it stands inside vmap, grad or their like, where a tensor has no values to read."""
    check = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", None)
    return check is not None and bool(check(tensor))


def mode_matters(module: nn.Module) -> bool:
    """Whether train or eval matters for it: dropout that drops, normalisation with statistics of its own."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return bool(module.track_running_stats)
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        return float(module.dropout) > 0.0
    return isinstance(module, nn.modules.dropout._DropoutNd) and float(module.p) > 0.0
