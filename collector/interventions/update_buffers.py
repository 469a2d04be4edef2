"""A copy of the trained model is evaluated with the trained model's buffers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from weaklink.collector.interventions.before_evaluation import BeforeEvaluation, other_buffers


class UpdateBuffers(BeforeEvaluation):
    """Running statistics that did not follow: an average of the weights is often an average of the parameters alone."""

    name = "update_buffers"

    def evaluated(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        twin = self.twin(module)
        if twin is None:
            return
        with torch.no_grad():
            for name, own, other in list(other_buffers(module, twin)):
                own.copy_(other)
                self.note_changed(self._watcher, name, "the trained model's buffers taken over")
