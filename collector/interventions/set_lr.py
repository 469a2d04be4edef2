"""One learning rate for every group at every step: where there is none to scale."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from weaklink.collector.interventions.group_values import ValueDuringStep


class SetLr(ValueDuringStep):
    """Every group's rate is the one given, whatever the script or a scheduler set."""

    name = "set_lr"
    key = "lr"

    def other(self, value: Any) -> Any:
        rate = float(str(self.parameters["lr"]))
        return value.new_full((), rate) if isinstance(value, Tensor) else rate
