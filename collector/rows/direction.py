"""UPDATE/direction: do the steps go down the loss that backward is called on?"""

from __future__ import annotations

import math

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.direction import DirectionRecord
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.forwards import ForwardsRecord

ID = "UPDATE/direction"
TEXT = "first steps against their gradients"
# The loss has climbed when each of so many last ones is above each of so many first ones.
FIRST, LAST = 3, 10
SAME = 1e-3


def rows(run: Observation) -> list[Row]:
    """One row: which optimizers' first steps went up the gradient, and whether a known loss climbed by that."""
    along = run.record(DirectionRecord).along
    if not along:
        reason = run.no_step() if not run.tape.steps else "no owned entry had a gradient"
        return [Row(id=ID, status="not_measured", text=TEXT, reason=reason)]
    up = [serial for serial, product in along.items() if product > 0.0]
    names = ", ".join(run.optimizers[serial].class_name for serial in up[:3])
    text = f"{len(along) - len(up)} of {len(along)} optimizers' first steps went down the gradient"
    text += f"; up: {names}" if up else ""
    if not up or not _climbs_for_nothing(run, up):
        # A return, a likelihood, a worst case are climbed on purpose; momentum that was loaded points where it did.
        status = "evidence" if up else "pass"
        return [Row.model_validate({"id": ID, "status": status, "text": text, "values": {"up": len(up)}})]
    losses = run.tape.losses.value
    writes = run.record(DirectionRecord).writes[:1]
    sites = [*writes, *(run.optimizers[serial].built for serial in up[:1]), run.tape.last_step_site]
    return [
        Row(
            id=ID,
            status="fail",
            basis="exact",
            text=f"{text}; the loss that backward is called on climbed from {losses[0]:.4f} to {losses[-1]:.4f}, and "
            "was no better than a constant output's to begin with",
            values={"up": len(up), "first": losses[0], "last": losses[-1]},
            where=[*(site for site in sites if site is not None), *run.record(FilesRecord).configuration()[:1]][:3],
            step=1,
        )
    ]


def _climbs_for_nothing(run: Observation, up: list[int]) -> bool:
    """Whether nothing in the run descends, what climbs is a loss of torch's own of a model's outputs, as it is, and it
    began where nothing was learned: to unlearn, something must have been there.
    """
    stepped = [optimizer for optimizer in run.optimizers if optimizer.steps]
    if {optimizer.serial for optimizer in stepped} != set(up) or run.record(ForwardsRecord).learned:
        return False
    # What is optimized outside a model (an attack, a prompt) may be meant to make the loss worse.
    held = {serial for optimizer in stepped for serial in optimizer.held}
    if not all(run.by_serial(serial).ever_in_model for serial in held):
        return False
    seen, losses = run.record(ForwardsRecord).losses, run.tape.losses.value
    if len(losses) < FIRST + LAST or not all(math.isfinite(value) for value in losses[:FIRST]):
        return False
    handed = {backward.loss for backward in run.backwards if backward.loss is not None}
    known = all(any(abs(value - loss) <= SAME * abs(loss) for value in handed) for _, loss, _ in seen)
    began = bool(seen) and seen[0][0] == 1 and seen[0][1] >= seen[0][2]
    last = [value for value in losses[-LAST:] if not math.isnan(value)]
    return known and began and bool(last) and min(last) > max(losses[:FIRST]) > 0.0
