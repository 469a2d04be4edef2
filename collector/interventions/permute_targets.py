"""Break the pairing of inputs and targets on purpose: what a run loses by it is what it had learned from it."""

from __future__ import annotations

import torch
from torch import Tensor

from weaklink.collector.evidence import Value
from weaklink.collector.interventions.targets import OtherTargets


class PermuteTargets(OtherTargets):
    """The same permutation for the same number of rows, drawn by a generator of its own."""

    name = "permute_targets"
    how = "targets permuted along dimension 0"

    def __init__(self, parameters: dict[str, Value]) -> None:
        super().__init__(parameters)
        self._permutations: dict[tuple[int, torch.device], Tensor] = {}

    def other(self, targets: Tensor) -> Tensor | None:
        if not targets.dim() or len(targets) < 2:
            return None
        key = len(targets), targets.device
        if key not in self._permutations:
            generator = torch.Generator().manual_seed(int(str(self.parameters["seed"])))
            # The device is said: a default one, set by the script, would not fit the generator.
            order = torch.randperm(len(targets), generator=generator, device="cpu")
            self._permutations[key] = order.to(targets.device)
        return targets[self._permutations[key]]
