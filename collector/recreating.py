"""A captured step, taken again: the script runs up to its first forward and finds itself in the step that was kept.

Its own loss, backward and step follow, once. What neither model, optimizer, batch nor random stream holds (a weight in
a variable of the script's, a counter) is as it is in the script's first step: the outcomes are compared, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.amp
from torch import Tensor, nn

from weaklink.collector.capture import STEP
from weaklink.collector.capturing import StepCalls, set_random_state
from weaklink.collector.plain_data import NotPlainError, in_place_of
from weaklink.collector.stopping import StopRun
from weaklink.collector.watching.watcher import Watcher


class Recreating(StepCalls):
    """Puts a captured step in the place of the script's first one.

    Args:
        folder: The captured step; its hash was checked by who asks for this.
        result: File for the outcomes.
        watcher: The watcher of the run.
    """

    def __init__(self, folder: Path, result: Path, watcher: Watcher) -> None:
        super().__init__(watcher, self._take)
        self._kept: dict[str, Any] = torch.load(folder / STEP, map_location="cpu", weights_only=True)
        self._result = result
        self._calls = 0
        self._roots = list(self._kept["roots"])
        self._scalers = list(self._kept["scalers"])
        watcher.wrap(torch.amp.GradScaler, "scale", self._scaled)

    def wanted(self) -> bool:
        return True

    def backward_ended(self) -> None:
        """Nothing: the outcomes are read when the step is over."""

    def root_called(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        calls = self._kept["calls"]
        if self._calls == len(calls):
            raise StopRun("stopped", "the captured step is over")
        if not self._calls and not self._is(module, self._roots[0]):
            return args, kwargs  # another model comes first: the captured step does not begin with it
        call = calls[self._calls]
        if type(module).__name__ != call["class"]:
            self._refuse(f"call {self._calls + 1} of the step is of {type(module).__name__}, not of {call['class']}")
        self._load(module)
        if not self._calls:
            self._load_optimizers()
            set_random_state(self._kept["random"])
        self._calls += 1
        try:
            return in_place_of(call["args"], args), in_place_of(call["kwargs"], kwargs)
        except NotPlainError as error:
            self._refuse(f"the model is called otherwise than in the captured step: {error}")
            raise

    def finish(self) -> None:
        """Write the outcomes.

        Raises:
            OSError: The file cannot be written.
        """
        if not self._calls and self.outcomes.problem is None:
            self.outcomes.problem = f"the script never called a {self._kept['calls'][0]['class']} like the captured one"
        elif self._calls < len(self._kept["calls"]) and self.outcomes.problem is None:
            self.outcomes.problem = f"the script made {self._calls} of {len(self._kept['calls'])} calls of the step"
        elif not self.outcomes.losses and self.outcomes.problem is None:
            self.outcomes.problem = "no backward followed the forward"
        self._result.write_text(self.outcomes.model_dump_json() + "\n", encoding="utf-8")

    def _refuse(self, problem: str) -> None:
        self.outcomes.problem = problem
        raise StopRun("stopped", problem)

    def _load(self, module: nn.Module) -> None:
        """Give a model the captured values, the first time it is called."""
        for kept in list(self._roots):
            if self._is(module, kept):
                self._roots.remove(kept)
                module.load_state_dict(kept["state"])
                for name, part in module.named_modules():
                    part.training = kept["training"].get(name, part.training)
                for name, parameter in module.named_parameters():
                    parameter.requires_grad_(kept["trainable"].get(name, parameter.requires_grad))
                return

    def _load_optimizers(self) -> None:
        live, kept = self.watcher.optimizers.alive(), self._kept["optimizers"]
        classes = [entry.class_name for entry, _ in live]
        if classes != [one["class"] for one in kept]:
            self._refuse(f"the optimizers are {classes} at the first forward, and were not in the captured step")
        for (_, optimizer), one in zip(live, kept, strict=True):
            try:
                optimizer.load_state_dict(one["state"])
            except (ValueError, KeyError, RuntimeError) as error:
                self._refuse(f"an optimizer does not take the captured state: {error}")

    def _is(self, module: nn.Module, kept: dict[str, Any]) -> bool:
        """Whether this is the model: the same class, and values of the same names and shapes."""
        if type(module).__name__ != kept["class"]:
            return False
        live = {name: value.shape for name, value in module.state_dict().items() if isinstance(value, Tensor)}
        return live == {name: value.shape for name, value in kept["state"].items() if isinstance(value, Tensor)}

    def _take(self, number: int, tensor: Tensor) -> Tensor:
        """The captured tensor in place of the script's own; of another type or rank it is not the same one."""
        if not self._calls:
            return tensor
        kept = self._kept["loss_inputs"]
        if number >= len(kept) or kept[number].dtype != tensor.dtype or kept[number].dim() != tensor.dim():
            self.outcomes.problem = "the loss is computed otherwise than in the captured step"
            return tensor
        found: Tensor = kept[number].to(tensor.device)
        return found

    def _scaled(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        if self._calls and self._scalers:
            scaler.load_state_dict(self._scalers.pop())
        return original(scaler, *args, **kwargs)
