"""Keeping a step that turns non-finite, in a rerun that exists for it: everything as it was when its forward began.

The observed run says about where; here each step from a little before is kept until the next one begins, and the first
whose loss or gradient is not finite stays.
"""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.amp
from torch import Tensor, nn

from weaklink.collector.capture import MANIFEST, STEP, Manifest, Outcomes, sha256_of
from weaklink.collector.job import CaptureSettings
from weaklink.collector.loss_inputs import LossInputs
from weaklink.collector.plain_data import NotPlainError, plain
from weaklink.collector.stopping import StopRun
from weaklink.collector.tensors import nonfinite, tensors_in
from weaklink.collector.watching.watcher import Watcher


class TooLargeError(Exception):
    """More bytes than the limit allows."""


class StepCalls(ABC):
    """Tells the calls of root models with gradients, and the backward calls, of a run: what both sides here share."""

    def __init__(self, watcher: Watcher, take: Callable[[int, Tensor], Tensor]) -> None:
        self.watcher = watcher
        self.outcomes = Outcomes()
        self.loss_inputs = LossInputs(take)
        self._depth = 0
        self._entered = False
        watcher.wrap(nn.Module, "__call__", self._module_called)
        watcher.wrap(torch.autograd, "backward", self._backward_called)

    @abstractmethod
    def wanted(self) -> bool:
        """Whether the step under way is of interest."""

    @abstractmethod
    def root_called(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """A root model is about to be called; answers the arguments to call it with."""

    @abstractmethod
    def backward_ended(self) -> None:
        """`outcomes` are up to date."""

    def _module_called(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        outer = self._depth == 0 and next(module.parameters(), None) is not None
        if not outer:  # inside a model, or a loss: what that is computed from is wanted
            self._depth += 1
            try:
                return original(module, *args, **kwargs)
            finally:
                self._depth -= 1
        active, self.loss_inputs.active = self.loss_inputs.active, False
        root = torch.is_grad_enabled() and self.wanted()
        if root:
            args, kwargs = self.root_called(module, args, kwargs)
        self._depth += 1
        try:
            output = original(module, *args, **kwargs)
        finally:
            self._depth -= 1
        if root and not self._entered:
            self._entered = True
            self.loss_inputs.enter()
        if root:
            self.loss_inputs.answered(output)
        else:
            self.loss_inputs.active = active  # a teacher's answer is kept like a target
        return output

    def _backward_called(self, original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        seen = self._entered and self._depth == 0 and self.wanted()
        self.loss_inputs.forget()
        self._depth += 1  # activation checkpoints call their modules again
        try:
            result = original(tensors, *args, **kwargs)
        finally:
            self._depth -= 1
        if seen:
            self.outcomes.losses += [repr(t.item()) for t in tensors_in(tensors) if t.numel() == 1]
            self.outcomes.nonfinite_gradients = self._broken_gradients()
            self.backward_ended()
        return result

    def _broken_gradients(self) -> list[str]:
        self.watcher.name_everything()
        found = [(entry.name, tensor.grad) for entry, tensor in self.watcher.parameters.alive() if entry.name]
        named = [(name, gradient) for name, gradient in found if gradient is not None]
        broken = nonfinite([gradient for _, gradient in named])
        return sorted(str(name) for (name, _), is_broken in zip(named, broken, strict=True) if is_broken)


class Capturing(StepCalls):
    """Keeps the first step, of those asked for, whose loss or gradient is not finite."""

    def __init__(self, settings: CaptureSettings, watcher: Watcher) -> None:
        super().__init__(watcher, self._take)
        self._settings = settings
        self._step = 0
        self._kept: dict[str, Any] = {}
        self._bytes = 0
        self._problem: str | None = None
        self._found = False
        watcher.wrap(torch.amp.GradScaler, "scale", self._scaled)

    def wanted(self) -> bool:
        return self._settings.first <= self.watcher.tape.steps + 1 <= self._settings.last

    def root_called(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        step = self.watcher.tape.steps + 1
        if step != self._step:
            self._begin(step, module)
        kept = self._keep(lambda: {"args": plain(args, self._copied), "kwargs": plain(kwargs, self._copied)})
        self._kept["calls"].append({"class": type(module).__name__, **(kept or {})})
        return args, kwargs

    def backward_ended(self) -> None:
        broken = any(loss in ("nan", "inf", "-inf") for loss in self.outcomes.losses)
        if broken or self.outcomes.nonfinite_gradients:
            self._found = True
            raise StopRun("stopped", f"step {self._step}, which turned non-finite, was captured")

    def finish(self) -> None:
        """Write what was kept, if a step turned out non-finite.

        Raises:
            OSError: The folder cannot be written.
        """
        if not self._found:
            return
        folder = self._settings.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.outcomes.problem = self._problem
        manifest = Manifest(
            step=self._step,
            calls=[call["class"] for call in self._kept["calls"]],
            complete=self._problem is None,
            bytes=self._bytes,
            outcomes=self.outcomes,
        )
        if self._problem is None:
            torch.save(self._kept, folder / STEP)
            manifest.sha256 = sha256_of(folder / STEP)
        (folder / MANIFEST).write_text(manifest.model_dump_json(by_alias=True) + "\n", encoding="utf-8")

    def _begin(self, step: int, module: nn.Module) -> None:
        """Before the first forward of a step: models, optimizers and random streams as they are."""
        self._step, self._bytes, self._problem = step, 0, None
        self.outcomes = Outcomes()
        roots = [root for _, root in self.watcher.roots.alive() if root is not module]
        self._kept = {"calls": [], "loss_inputs": [], "scalers": [], "random": _random_state()}
        self._kept["roots"] = self._keep(lambda: [self._root(root) for root in [module, *roots]])
        self._kept["optimizers"] = self._keep(
            lambda: [
                {"class": entry.class_name, "state": plain(optimizer.state_dict(), self._copied)}
                for entry, optimizer in self.watcher.optimizers.alive()
            ]
        )

    def _root(self, module: nn.Module) -> dict[str, Any]:
        return {
            "class": type(module).__name__,
            "state": plain(module.state_dict(), self._copied),
            "training": {name: part.training for name, part in module.named_modules()},
            "trainable": {name: parameter.requires_grad for name, parameter in module.named_parameters()},
        }

    def _keep(self, make: Callable[[], Any]) -> Any:
        """What `make` gives; None, with the reason noted, where it is too large or no plain data."""
        if self._problem is not None:
            return None
        try:
            return make()
        except TooLargeError:
            limit = self._settings.limit / 2**20
            self._problem = f"what it takes is larger than the limit of {limit:g} MiB"
        except NotPlainError as error:
            self._problem = str(error)
        return None

    def _copied(self, tensor: Tensor) -> Tensor:
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes > self._settings.limit:
            raise TooLargeError
        with torch.no_grad():
            return tensor.detach().to("cpu", copy=True).contiguous()

    def _take(self, number: int, tensor: Tensor) -> Tensor:
        self._kept["loss_inputs"].append(self._keep(lambda: self._copied(tensor)))
        return tensor

    def _scaled(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        if self.wanted() and self._kept and not self._kept["scalers"]:
            self._kept["scalers"].append(plain(scaler.state_dict(), self._copied))
        return original(scaler, *args, **kwargs)


def _random_state() -> dict[str, Any]:
    """The global streams of Python, numpy and torch as plain data."""
    version, words, gauss = random.getstate()
    numpy_random = sys.modules.get("numpy.random")
    found: dict[str, Any] = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    if numpy_random is not None:
        name, keys, place, has_gauss, cached = numpy_random.get_state()
        found["numpy"] = [name, [int(key) for key in keys], int(place), int(has_gauss), float(cached)]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def set_random_state(kept: dict[str, Any]) -> None:
    """Put the streams back as `_random_state` found them."""
    version, words, gauss = kept["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(kept["torch"])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and "numpy" in kept:
        numpy_random.set_state(tuple(kept["numpy"]))
    if "cuda" in kept and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.set_rng_state_all(kept["cuda"])
