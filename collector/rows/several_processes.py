"""What one of several processes can tell of itself; the comparison with the other ranks is `collector/replicas.py`."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.ranks import NOTHING, Epoch, Order, RanksRecord


def rows(run: Observation) -> list[Row]:
    """TASK/epoch_order, where a `DistributedSampler` that shuffles dealt out training data."""
    trained = [order for order in run.record(RanksRecord).orders if order.epochs]
    return [_epoch_order(trained)] if trained else []


def _epoch_order(trained: list[Order]) -> Row:
    """Whether each epoch is shuffled anew: the sampler draws its order from its seed and the epoch it was told."""
    longest = max(trained, key=lambda order: len(order.epochs))
    repeated = [order for order in trained if len(order.epochs) > 1 and _one_order(order)]
    if not repeated:
        told = sorted({epoch.drawn_from for epoch in longest.epochs})
        several = len(longest.epochs) > 1
        return Row(
            id="TASK/epoch_order",
            status="pass" if several and len(told) > 1 else "evidence",
            text=f"{len(longest.epochs)} epochs of a DistributedSampler, {len(told)} orders drawn",
            values={"epochs": len(longest.epochs), "orders": len(told)},
        )
    order = repeated[0]
    same = _same_data(order.epochs)
    text = f"a DistributedSampler that shuffles drew one order for {len(order.epochs)} epochs: nobody called set_epoch"
    return Row(
        id="TASK/epoch_order",
        status="fail" if same else "evidence",
        basis="exact" if same else None,
        text=text if same else text + "; what was at those places differs, or was not seen",
        values={"epochs": len(order.epochs), "orders": 1},
        where=[order.site] if order.site is not None else [],
    )


def _one_order(order: Order) -> bool:
    return len({epoch.drawn_from for epoch in order.epochs}) == 1


def _same_data(epochs: list[Epoch]) -> bool:
    """Whether the second epoch brought what the first one had: a data set may reshuffle itself under the same order.

    By the first inputs, or, where an augmentation changes them, by targets that differ from step to step.
    """
    first, second = epochs[0], epochs[1]
    if first.inputs == second.inputs != NOTHING:
        return True
    common = first.targets.keys() & second.targets.keys()
    telling = len(set(first.targets.values())) > 1
    return telling and bool(common) and all(first.targets[place] == second.targets[place] for place in common)
