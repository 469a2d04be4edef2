"""Where the graph was cut: `detach` called by the user's own code on a tensor that still had a history.

The call goes through unchanged. What it cuts off is read from the graph of its input: the leaves that a loss built on
the result can no longer reach by this way.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from weaklink.collector.watching.graph import leaves_of
from weaklink.collector.watching.parameters import ParameterBook
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.switches import checkpoint_site
from weaklink.collector.watching.tape import CutSample, Window

# A logging line detaches once a step; a loop over thousands of tensors says nothing more after the first ones.
CUTS_PER_WINDOW = 32


class CutReader:
    """Writes down the calls of one window. `window` is None outside sampled steps."""

    def __init__(self, parameters: ParameterBook, code: UserCode) -> None:
        self._parameters = parameters
        self._code = code
        self.window: Window | None = None

    def called_without_gradients(self, module: nn.Module) -> None:
        """A module inside a model that was called with gradients is about to run without them."""
        window = self.window
        if window is None or len(window.cuts) >= CUTS_PER_WINDOW:
            return
        leaves = {self._parameters.entry(p).serial for p in module.parameters() if p.requires_grad}
        if any(cut.kind in ("no_grad", "checkpoint") and leaves <= cut.leaves for cut in window.cuts):
            return  # part of one that was called so
        checkpoint = checkpoint_site(self._code) if leaves else None
        site = checkpoint or (self._code.site("called without gradients (no_grad)") if leaves else None)
        if site is None:
            return
        known = next((cut for cut in window.cuts if cut.site == site), None)
        if known is None:
            window.cuts.append(CutSample(site, leaves, "no_grad" if checkpoint is None else "checkpoint"))
        else:
            known.leaves |= leaves

    def called(self, tensor: Any) -> None:
        """A tensor is about to be detached."""
        window = self.window
        if window is None or len(window.cuts) >= CUTS_PER_WINDOW:
            return
        if not isinstance(tensor, Tensor) or not tensor.requires_grad or tensor.grad_fn is None:
            return
        # torch's own functions detach too (straight-through estimators): only a call that the user wrote counts.
        site = self._code.direct_site("detach called")
        if site is None or any(cut.site == site for cut in window.cuts):
            return
        window.cuts.append(CutSample(site, leaves_of(tensor.grad_fn, self._parameters)))
