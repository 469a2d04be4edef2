"""Where parameters were filled with zeros before training began: the line that an all-zero weight comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weaklink.collector.evidence import Site
from weaklink.collector.watching.context import is_traced, unseen_by_warnings
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.tape import BackwardSample

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

# A model of more tensors than that is initialised by one line for all of them.
WRITES_LIMIT = 4096


@dataclass
class ZerosWritten:
    """The last line that wrote zeros into a parameter before the first backward, by its serial number."""

    sites: dict[int, Site] = field(default_factory=dict)


class ZeroWrites(Part):
    """Listens to `zero_()`, which `nn.init.zeros_` ends in, and `nn.init.constant_` until the first backward."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        # By address and size: what is written through `.data` is another object with the same memory.
        self._written: dict[tuple[int, int], Site] = {}

    def install(self) -> None:
        """Wrap the two."""
        self.watcher.wrap(Tensor, "zero_", self._wrote)
        self.watcher.wrap(torch.nn.init, "constant_", self._wrote)

    @unseen_by_warnings
    def _wrote(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not self.tape.backwards and not is_traced():
            self.watcher.guarded(self._note)(args, kwargs)
        return result

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensor = args[0] if args else kwargs.get("tensor")
        value = args[1] if len(args) > 1 else kwargs.get("val", 0)
        if (
            not isinstance(tensor, Tensor)
            or type(tensor) not in (Tensor, nn.Parameter)
            or value != 0
            or len(self._written) >= WRITES_LIMIT
        ):
            return
        site = self.watcher.code.site("filled with zeros")
        if site is not None and tensor.device.type != "meta":
            self._written[tensor.data_ptr(), tensor.numel()] = site

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Once: which parameters these addresses are."""
        if not self._written:
            return
        sites = self.tape.record(ZerosWritten).sites
        for entry, tensor in self.watcher.parameters.alive():
            if type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided:
                site = self._written.get((tensor.data_ptr(), tensor.numel()))
                if site is not None:
                    sites[entry.serial] = site
        self._written.clear()
