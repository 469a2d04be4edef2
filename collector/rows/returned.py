"""UPDATE/returned: do the parameters stay where the steps bring them?"""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.returns import Moment, ReturnsRecord, returned

ID = "UPDATE/returned"
TEXT = "parameters that come back to what they were before"
# So many returns, and to the very same values each time, are no accident and no single restore.
RETURNS_FOR_ALWAYS = 3


def rows(run: Observation) -> list[Row]:
    """One row: whether all that the steps moved is taken back again and again."""
    seen = run.record(ReturnsRecord)
    for serial, moments in seen.moments.items():
        back = returned(moments, serial in seen.scheduled)
        if len(back) >= RETURNS_FOR_ALWAYS and not _left_for_good(moments, back):
            return [_lost(run, serial, moments, back)]
    count = sum(len(moments) for moments in seen.moments.values())
    if count < 2:
        return [Row(id=ID, status="not_measured", text=TEXT, reason=run.no_step() if not count else "a single step")]
    back_once = sum(len(returned(moments, serial in seen.scheduled)) for serial, moments in seen.moments.items())
    text = f"at {back_once} of {count} moments they were again what they were at the first step"
    return [Row(id=ID, status="evidence" if back_once else "pass", text=text, values={"returns": back_once})]


def _left_for_good(moments: list[Moment], back: list[Moment]) -> bool:
    """Whether the last time that somebody wrote into the parameters, they did not come back: they have got away."""
    return any(moment.written and moment.step > back[-1].step for moment in moments)


def _lost(run: Observation, optimizer: int, moments: list[Moment], back: list[Moment]) -> Row:
    moved = [run.by_serial(serial) for serial in moments[0].digests if run.moved(run.by_serial(serial))]
    steps = ", ".join(str(moment.step - 1) for moment in back[:4])
    return Row(
        id=ID,
        status="fail",
        basis="exact",
        text=f"after steps {steps} the parameters are bit for bit what they were before step {moments[0].step}, "
        f"although the steps move them: {names(moved)}",
        values={"returns": len(back), "moved": len(moved)},
        where=_sites(run, optimizer),
        step=back[0].step - 1,
    )


def _sites(run: Observation, optimizer: int) -> list[Site]:
    writes = run.record(ReturnsRecord).writes[:2]
    built = next((entry.built for entry in run.optimizers if entry.serial == optimizer), None)
    return [*writes, *([built] if built else [])]
