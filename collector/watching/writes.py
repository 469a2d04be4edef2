"""Where the user's code writes into given tensors in place: seen by Python's profiling hook, for a few moments only.

Torch has no hook for `p.grad.mul_(...)` or `p.copy_(...)`. The interpreter tells a profiling function about each call
of a method written in C, and whose method it is. It is put in place only after something odd was measured, never in an
ordinary run, and not where the script has a profiling function of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.watching.sites import UserCode

# Sites of one search; the first ones are where it happens.
KEPT_SITES = 8


class WriteFinder:
    """Finds the lines that call in-place methods of certain tensors between `begin` and `end`."""

    def __init__(self, code: UserCode, found: list[Site], what: str) -> None:
        self._code = code
        self._found = found
        self._what = what
        self._wanted: Callable[[Tensor], bool] | None = None

    def begin(self, wanted: Callable[[Tensor], bool]) -> None:
        """Look from now on; `wanted` says which tensors count."""
        if sys.getprofile() is None and len(self._found) < KEPT_SITES:
            self._wanted = wanted
            sys.setprofile(self._called)

    def end(self) -> None:
        """Stop looking."""
        if self._wanted is not None:
            self._wanted = None
            if sys.getprofile() == self._called:
                sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or self._wanted is None:
            return
        name = getattr(function, "__name__", "")
        if not _in_place(name):
            return
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Tensor) and self._wanted(owner):
            self._note(frame)

    def _note(self, frame: FrameType | None) -> None:
        while frame is not None:
            if (name := self._code.relative(frame.f_code.co_filename)) is not None:
                site = Site(file=name, line=frame.f_lineno, what=self._what)
                if site not in self._found and len(self._found) < KEPT_SITES:
                    self._found.append(site)
                return
            frame = frame.f_back


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")
