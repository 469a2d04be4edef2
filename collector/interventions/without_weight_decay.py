"""No weight decay: what it holds back, if it holds anything back, is free to move."""

from __future__ import annotations

from typing import Any

from weaklink.collector.interventions.group_values import ValueDuringStep


class WithoutWeightDecay(ValueDuringStep):
    """Every group's weight decay is 0 during each step."""

    name = "without_weight_decay"
    key = "weight_decay"

    def other(self, value: Any) -> Any:
        return value * 0
