"""Change what one line calls of one function of torch: the one change that tells an operation from all others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.functions import argument, replace, with_argument
from weaklink.collector.interventions.operations import (
    OWNERS,
    ranged_argument,
    second_operand,
    small,
    spellings,
    within_range,
    writes_in_place,
)
from weaklink.collector.watching.context import unseen_by_warnings

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

Call = Callable[..., Any]
Args = tuple[Any, ...]


class AtSite(Intervention):
    """The line is the innermost one of the user's: what a module or a library calls on its behalf is changed too.

    What a changed call calls inside itself goes through: `F.relu` calls `torch.relu`.
    """

    name = "at_site"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._inside = False
        self._function = str(self.parameters["function"])
        changes = {"bypass": self._bypass, "cut": self._cut, "clamp": self._moved, "epsilon": self._moved}
        self._change = changes.get(str(self.parameters["change"]), self._out_of_place)
        for owner in OWNERS:
            for spelled in spellings(self._function):
                replace(owner, (spelled,), functools.partial(self._call, spelled))

    @unseen_by_warnings
    def _call(self, spelled: str, original: Call, args: Args, kwargs: dict[str, Any]) -> Any:
        if self._inside or not self._here() or not isinstance(argument(args, kwargs, 0, "input"), Tensor):
            return original(*args, **kwargs)
        self._inside = True
        try:
            return self._change(spelled, original, args, kwargs)
        finally:
            self._inside = False

    def _here(self) -> bool:
        site = self._watcher.code.site("called")
        return site is not None and f"{site.file}:{site.line}" == self.parameters["site"]

    def _changed(self, how: str) -> None:
        self.note_changed(self._watcher, str(self.parameters["site"]), f"{self._function} {how}")

    def _bypass(self, spelled: str, original: Call, args: Args, kwargs: dict[str, Any]) -> Any:
        """The first argument is the answer. Until the first time it differs from it, the true one is computed too."""
        given = argument(args, kwargs, 0, "input")
        with torch.no_grad():
            scratch, named = with_argument(args, kwargs, 0, "input", given.clone())
            answer = original(*scratch, **named)
        if not isinstance(answer, Tensor) or answer.shape != given.shape:
            return original(*args, **kwargs)
        if not self.report.applied and not torch.equal(answer, given):
            self._changed("answered its own input")
        # A tensor of its own, as the function answers: what the script writes into it must not reach the input.
        return given if writes_in_place(spelled) or kwargs.get("inplace") else given.clone()

    def _cut(self, spelled: str, original: Call, args: Args, kwargs: dict[str, Any]) -> Any:
        second = second_operand(spelled)
        operand = args[second] if len(args) > 1 else kwargs.get("other")
        if isinstance(operand, Tensor):
            if operand.requires_grad:
                self._changed("took its second operand without a history")
                args, kwargs = with_argument(args, kwargs, second, "other", _without_history(operand))
            return original(*args, **kwargs)
        answer = original(*args, **kwargs)
        if not isinstance(answer, Tensor) or not answer.requires_grad:
            return answer
        self._changed("answered without a history")
        return _without_history(answer)

    def _moved(self, spelled: str, original: Call, args: Args, kwargs: dict[str, Any]) -> Any:
        """The argument moved into the range, or by a small number."""
        position = ranged_argument(self._function, spelled)
        name = "other" if position else "input"
        given = argument(args, kwargs, position, name)
        if not isinstance(given, Tensor) or not given.is_floating_point():
            return original(*args, **kwargs)
        in_place = position == 0 and writes_in_place(spelled)
        given, written = (given.clone() if in_place else given), given
        if self.parameters["change"] == "epsilon":
            moved, how = given + small(given.dtype), f"was given its argument and {small(given.dtype):g}"
        else:
            moved, how = within_range(self._function, given, argument(args, kwargs, 1, "exponent")), "was kept in range"
        if not self.report.applied and bool(((moved != given) & ~given.isnan()).any()):
            self._changed(how)
        if in_place:
            return written.copy_(original(*with_argument(args, kwargs, 0, name, moved.clone())[0], **kwargs))
        args, kwargs = with_argument(args, kwargs, position, name, moved)
        return original(*args, **kwargs)

    def _out_of_place(self, spelled: str, original: Call, args: Args, kwargs: dict[str, Any]) -> Any:
        """The call works on a copy, and answers it: an assignment, such as that of `+=`, takes it over."""
        copy = argument(args, kwargs, 0, "input").clone()
        version = copy._version
        args, kwargs = with_argument(args, kwargs, 0, "input", copy)
        answer = original(*args, **kwargs)
        if copy._version != version:
            self._changed("wrote to a copy")
        return answer


def _without_history(tensor: Tensor) -> Tensor:
    with torch.no_grad():  # and not `detach`, which is watched as the script's own
        return tensor.clone()
