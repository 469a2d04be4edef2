"""A copy of the trained model is evaluated with the trained weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from weaklink.collector.interventions.before_evaluation import BeforeEvaluation


class EvaluateTrainedWeights(BeforeEvaluation):
    """The parameters of the trained model are written into its copy, right before each of its evaluations."""

    name = "evaluate_trained_weights"

    def evaluated(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        twin = self.twin(module)
        if twin is None:
            return
        with torch.no_grad():
            pairs = zip(module.named_parameters(), twin.parameters(), strict=True)
            differing = [(name, own, other) for (name, own), other in pairs if not torch.equal(own, other.to(own))]
            for name, own, other in differing:
                # Through .data, so that autograd's version counter does not see it.
                own.data.copy_(other)
                self.note_changed(self._watcher, name, "the trained weights taken over")
