"""UPDATE/pending and DEPENDENCY/carried: did a step change what a backward still needed?"""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.pending import Pending, PendingRecord

ID = "UPDATE/pending"
CARRIED = "DEPENDENCY/carried"
TEXT = "a backward that needs what a step has changed"


def rows(run: Observation) -> list[Row]:
    """One row; where it fails it stands for the exception too. None of a ledger, whose one step is ours."""
    record = run.record(PendingRecord)
    found = record.found
    if not record.watched:
        return []
    if found is not None:
        return [_carried(run, found)] if found.carried else [_early(run, found)]
    if record.unexplained:
        text = "torch refused a backward for a tensor that was changed, and no step had changed it"
        return [Row(id=ID, status="evidence", text=text)]
    if not run.tape.steps or not run.tape.backwards:
        return [Row(id=ID, status="not_measured", text=TEXT, reason=run.no_step())]
    return [Row(id=ID, status="pass", text="torch refused no backward for a tensor that a step had changed")]


def _early(run: Observation, found: Pending) -> Row:
    text = "before a backward that still needed what it had been"
    return _failed(run, found, ID, f"{_step(run, found)} {text}")


def _carried(run: Observation, found: Pending) -> Row:
    text = "and the loss, made after that step, hangs on a graph from before it: something is carried over undetached"
    return _failed(run, found, CARRIED, f"{_step(run, found)}, {text}")


def _step(run: Observation, found: Pending) -> str:
    held = [run.by_serial(serial) for serial in found.parameters]
    return f"step {found.step} ({run.optimizers[found.optimizer].class_name}) changed {names(held, 3)}"


def _failed(run: Observation, found: Pending, row_id: str, text: str) -> Row:
    held = [run.by_serial(serial) for serial in found.parameters]
    return Row(
        id=row_id,
        status="fail",
        basis="exact",
        text=text + (f"; the script raised: {run.raised_text}" if run.raised_text else ""),
        values={
            "step": found.step,
            "optimizer": run.optimizers[found.optimizer].class_name,
            "parameters": [entry.name or "an unnamed tensor" for entry in held[:20]],
            "step_at": found.step_site.place if found.step_site else None,
            "backward_at": found.backward_site.place if found.backward_site else None,
        },
        where=[site for site in (found.step_site, found.backward_site) if site is not None],
        step=found.step,
    )
