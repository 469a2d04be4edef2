"""Writing down every number of a short run: gradients as the steps consume them, and what the steps move."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.step_values import LARGEST_SYSTEM, StepValues
from weaklink.collector.watching.watcher import Watcher


class Recording:
    """Hangs on the watcher's steps; `finish` writes the file. Kept by serial number: names may change until the end.

    Args:
        path: Where to write.
        watcher: Knows the parameters.
    """

    def __init__(self, path: Path, watcher: Watcher) -> None:
        self._path, self._watcher = path, watcher
        self._gradients: dict[int, list[list[float]]] = {}
        self._movements: dict[int, list[list[float]]] = {}
        self._moved: list[list[int]] = []
        self._outside: dict[int, None] = {}
        self._problem: str | None = None
        self._before: dict[int, Tensor] = {}
        watcher.before_step.append(self._step_begins)
        watcher.after_step.append(self._step_ended)

    def finish(self) -> None:
        """The script is over."""
        self._outside |= dict.fromkeys(self._changed())
        name = self._name
        values = StepValues(
            gradients={name(serial): series for serial, series in self._gradients.items()},
            movements={name(serial): series for serial, series in self._movements.items()},
            moved=[[name(serial) for serial in moved] for moved in self._moved],
            outside=[name(serial) for serial in self._outside],
        )
        found = values if self._problem is None else StepValues(problem=self._problem)
        self._path.write_text(found.model_dump_json(), encoding="utf-8")

    def _step_begins(self, optimizer: Optimizer) -> None:
        self._watcher.name_everything()
        if self._is_too_large():
            return
        self._outside |= dict.fromkeys(self._changed())
        self._keep()
        for serial, tensor in self._held(optimizer):
            if tensor.grad is not None:
                self._gradients.setdefault(serial, []).append(_numbers(tensor.grad))

    def _step_ended(self, optimizer: Optimizer) -> None:
        if self._problem is not None:
            return
        for serial, tensor in self._held(optimizer):
            if tensor.grad is not None:
                self._movements.setdefault(serial, []).append(_numbers(tensor.detach() - self._before[serial]))
        self._moved.append(self._changed())
        self._keep()

    def _is_too_large(self) -> bool:
        if self._problem is None and sum(tensor.numel() for _, tensor in self._named()) > LARGEST_SYSTEM:
            self._problem, self._before = f"the parameters have more than {LARGEST_SYSTEM} values", {}
        return self._problem is not None

    def _keep(self) -> None:
        self._before = {serial: tensor.detach().clone() for serial, tensor in self._named()}

    def _named(self) -> list[tuple[int, Tensor]]:
        alive = self._watcher.parameters.alive()
        return [(entry.serial, tensor) for entry, tensor in alive if entry.name is not None]

    def _held(self, optimizer: Optimizer) -> list[tuple[int, Tensor]]:
        held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        return [(serial, tensor) for serial, tensor in self._named() if id(tensor) in held and serial in self._before]

    def _changed(self) -> list[int]:
        """What is no longer, in some bit, what it was when it was last looked at."""
        pairs = [(serial, tensor, self._before[serial]) for serial, tensor in self._named() if serial in self._before]
        return [serial for serial, tensor, before in pairs if not torch.equal(tensor.detach(), before)]

    def _name(self, serial: int) -> str:
        return self._watcher.parameters.entries[serial].name or f"tensor {serial}"


def _numbers(tensor: Tensor) -> list[float]:
    return [float(value) for value in tensor.detach().flatten().tolist()]
