"""The calls of a model's modules during one forward, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

# name, module, output, and whether no other module ran inside the call
OnCall = Callable[[str, nn.Module, Any, bool], None]


def listen(model: nn.Module, on_call: OnCall) -> None:
    """Hear of every module call as it ends. The hooks are not taken off: work inside `preserved`.

    A call is a leaf when no other module was called inside it: attention layers have parts that they never call.
    """
    inner_calls: list[int] = []

    def begins(*_: Any) -> None:
        if inner_calls:
            inner_calls[-1] += 1
        inner_calls.append(0)

    def ends(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, _: Any, output: Any) -> None:
            on_call(name or type(module).__name__, module, output, inner_calls.pop() == 0)

        return hook

    for name, module in model.named_modules():
        # A parametrization (weight norm) computes weights; it is no stage of its own.
        if "parametrizations" not in name.split("."):
            module.register_forward_pre_hook(begins)
            module.register_forward_hook(ends(name))
