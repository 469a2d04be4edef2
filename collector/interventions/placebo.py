"""One unit in the last place on one weight: what a change of no meaning does to every measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from weaklink.collector.interventions.base import Intervention

if TYPE_CHECKING:
    from weaklink.collector.watch.watcher import Watcher


class Placebo(Intervention):
    """Moves one entry of the first trainable parameter to its next representable value, before the first forward."""

    name = "placebo"

    def attach(self, watcher: Watcher) -> None:
        watcher.at_first_forward.append(self._nudge)

    def _nudge(self, module: nn.Module) -> None:
        for name, tensor in module.named_parameters():
            if tensor.requires_grad and tensor.is_floating_point() and tensor.numel():
                with torch.no_grad():
                    flat = tensor.detach().flatten()[:1].clone()
                    nudged = torch.nextafter(flat, torch.full_like(flat, float("inf")))
                    # Through .data, so that autograd's version counter does not see it.
                    tensor.data[tuple(0 for _ in tensor.shape)] = nudged[0]
                self.report.applied = True
                self.report.changed = [name]
                self.report.detail = "one unit in the last place on one entry"
                return
