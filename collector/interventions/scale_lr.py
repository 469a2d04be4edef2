"""Another learning rate at every step: the one change that tells a wrong rate from everything else."""

from __future__ import annotations

from typing import Any

from weaklink.collector.interventions.group_values import ValueDuringStep


class ScaleLr(ValueDuringStep):
    """Every group's rate times the factor, whatever a scheduler makes of it."""

    name = "scale_lr"
    key = "lr"

    def other(self, value: Any) -> Any:
        return value * float(str(self.parameters["factor"]))
