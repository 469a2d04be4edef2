"""Where gradients are switched off: the line of the block, or of the decorator of the function that runs without."""

from __future__ import annotations

import sys
from types import FrameType

from torch.utils import checkpoint

from weaklink.collector.evidence import Site
from weaklink.collector.watching.sites import UserCode


def switch_site(code: UserCode) -> Site | None:
    """Called while a gradient mode is being entered: who enters it, in the user's own code."""
    return _decorated(code) or code.site("gradients switched off")


def checkpoint_site(code: UserCode) -> Site | None:
    """The line that called the re-entrant checkpoint which runs now, without gradients as it always does; else None."""
    frame: FrameType | None = sys._getframe(1)
    inside = False
    while frame is not None:
        inside |= frame.f_code.co_name == "forward" and frame.f_code.co_filename == checkpoint.__file__
        name = code.relative(frame.f_code.co_filename)
        if inside and name is not None:
            return Site(file=name, line=frame.f_lineno, what="a re-entrant checkpoint called")
        frame = frame.f_back
    return None


def _decorated(code: UserCode) -> Site | None:
    """The line of the decorator, where a function runs without gradients because it was decorated so."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "decorate_context":
            function = getattr(frame.f_locals.get("func"), "__code__", None)
            name = code.relative(function.co_filename) if function is not None else None
            if function is None or name is None:
                return None
            return Site(file=name, line=function.co_firstlineno, what="gradients switched off by a decorator")
        if code.relative(frame.f_code.co_filename) is not None:
            return None  # a block in the user's own code
        frame = frame.f_back
    return None
