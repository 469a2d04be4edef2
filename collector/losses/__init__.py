"""The losses torch ships, computed again by hand: in float64, from plain arithmetic, without torch's own losses."""

from weaklink.collector.losses.by_hand import ByHand
from weaklink.collector.losses.classes import softmax_floor
from weaklink.collector.losses.reproduce import reproduce

__all__ = ["ByHand", "reproduce", "softmax_floor"]
