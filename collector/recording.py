"""Writing down every number of a short run: gradients as the steps consume them, and what the steps move."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.step_values import LARGEST_SYSTEM, StepValues
from weaklink.collector.watching.watcher import Watcher


class Recording:
    """Hangs on the watcher's steps; `finish` writes the file.

    Args:
        path: Where to write.
        watcher: Knows the parameters by name.
    """

    def __init__(self, path: Path, watcher: Watcher) -> None:
        self._path, self._watcher = path, watcher
        self._values = StepValues()
        self._before: dict[int, Tensor] = {}
        watcher.before_step.append(self._step_begins)
        watcher.after_step.append(self._step_ended)

    def finish(self) -> None:
        """The script is over."""
        self._values.outside += [name for name in self._changed() if name not in self._values.outside]
        self._path.write_text(self._values.model_dump_json(), encoding="utf-8")

    def _step_begins(self, optimizer: Optimizer) -> None:
        if self._values.problem is not None or self._too_large():
            return
        self._watcher.name_everything()
        self._values.outside += [name for name in self._changed() if name not in self._values.outside]
        self._before = {serial: tensor.detach().clone() for serial, _, tensor in self._named()}
        for name, tensor in self._held(optimizer):
            if tensor.grad is not None:
                self._values.gradients.setdefault(name, []).append(_numbers(tensor.grad))

    def _step_ended(self, optimizer: Optimizer) -> None:
        if self._values.problem is not None:
            return
        for name, tensor in self._held(optimizer):
            before = self._before.get(self._watcher.parameters.entry(tensor).serial)
            if tensor.grad is not None and before is not None:
                self._values.movements.setdefault(name, []).append(_numbers(tensor.detach() - before))
        self._values.moved.append(self._changed())
        self._before = {serial: tensor.detach().clone() for serial, _, tensor in self._named()}

    def _too_large(self) -> bool:
        if sum(tensor.numel() for _, _, tensor in self._named()) > LARGEST_SYSTEM:
            self._values = StepValues(problem=f"the parameters have more than {LARGEST_SYSTEM} values")
        return self._values.problem is not None

    def _named(self) -> list[tuple[int, str, Tensor]]:
        alive = self._watcher.parameters.alive()
        return [(entry.serial, entry.name, tensor) for entry, tensor in alive if entry.name is not None]

    def _held(self, optimizer: Optimizer) -> list[tuple[str, Tensor]]:
        held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        return [(name, tensor) for _, name, tensor in self._named() if id(tensor) in held]

    def _changed(self) -> list[str]:
        """Names of what is no longer, in some bit, what it was when it was last looked at."""
        pairs = [(name, tensor, self._before[serial]) for serial, name, tensor in self._named() if serial in self._before]
        return [name for name, tensor, before in pairs if not torch.equal(tensor.detach(), before)]


def _numbers(tensor: Tensor) -> list[float]:
    return [float(value) for value in tensor.detach().flatten().tolist()]
