"""OBJECTIVE/factor: a constant factor of exactly zero that multiplies all that the loss could teach."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation
from weaklink.collector.rows.vanishing import dead
from weaklink.collector.watching.dead_gradients import LOOK

_TEXT = "a factor that multiplies the loss"


def rows(run: Observation) -> list[Row]:
    """The row; `pass` needs no look where gradients arrive."""
    if not run.learning() or not any(b.gradients for b in run.backwards):
        reason = "no gradient of a model parameter was seen"
        return [Row(id="OBJECTIVE/factor", status="not_measured", text=_TEXT, reason=reason)]
    found = dead(run, run.learning())
    if found is None or not found.everything:
        return [Row(id="OBJECTIVE/factor", status="pass", text="something that it multiplies receives a gradient")]
    look = run.look(LOOK)
    if look.values is None:
        return [Row(id="OBJECTIVE/factor", status="not_measured", text=_TEXT, reason=look.problem)]
    if not found.stops or found.kinds() != {"factor"}:
        return [Row(id="OBJECTIVE/factor", status="pass", text="no constant factor of zero takes the gradient")]
    frames = [stop["frames"][0] for stop in found.stops if stop["frames"]]
    return [
        Row(
            id="OBJECTIVE/factor",
            status="fail",
            basis="exact",
            text="a constant factor of exactly zero multiplies all that the loss reaches: nothing can be learned",
            values={"factors": len(found.stops)},
            where=[Site(file=f["file"], line=f["line"], what="multiplied by zero") for f in frames[:3]],
            step=found.since or 1,
        )
    ]
