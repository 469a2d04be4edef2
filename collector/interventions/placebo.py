"""One unit in the last place on one weight: what a change of no meaning does to every measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from weaklink.collector.interventions.base import Intervention

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Placebo(Intervention):
    """Moves one weight to its next representable value, before the first forward.

    The largest entry of the last trainable parameter: nearest to the output, where no dead unit can swallow it.
    """

    name = "placebo"

    def attach(self, watcher: Watcher) -> None:
        watcher.at_first_forward.append(self._nudge)

    def _nudge(self, module: nn.Module) -> bool:
        """Done once a root with something trainable was called; a frozen backbone may come first."""
        trainable = [
            (name, tensor)
            for name, tensor in module.named_parameters()
            if tensor.requires_grad and tensor.is_floating_point() and tensor.numel()
        ]
        if not trainable:
            return False
        # An entry of zero has no last place: its neighbour is lost in the first update.
        name, tensor = next((pair for pair in reversed(trainable) if bool((pair[1] != 0).any())), trainable[-1])
        with torch.no_grad():
            # Through .data, so that autograd's version counter does not see it; by position, for any memory layout.
            place = torch.unravel_index(tensor.detach().abs().argmax(), tensor.shape)
            entry = tensor.data[place]
            tensor.data[place] = torch.nextafter(entry, torch.full_like(entry, float("inf")))
        self.report.applied = True
        self.report.changed = [name]
        self.report.detail = "one unit in the last place on one entry"
        return True
