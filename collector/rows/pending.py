"""UPDATE/pending: did a step change what a backward still needed?"""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.pending import PendingRecord

ID = "UPDATE/pending"
TEXT = "a backward that needs what a step has changed"


def rows(run: Observation) -> list[Row]:
    """One row. Where it fails it stands for the exception too: that backward raised is what the step led to."""
    found = run.record(PendingRecord).found
    if found is None:
        if not run.tape.steps or not run.tape.backwards:
            return [Row(id=ID, status="not_measured", text=TEXT, reason=run.no_step())]
        return [Row(id=ID, status="pass", text="torch refused no backward for a tensor that a step had changed")]
    held = [run.by_serial(serial) for serial in found.parameters]
    optimizer = run.optimizers[found.optimizer].class_name
    raised = f"; the script raised: {run.raised_text}" if run.raised_text else ""
    return [
        Row(
            id=ID,
            status="fail",
            basis="exact",
            text=f"step {found.step} ({optimizer}) changed {names(held, 3)} before a backward that still needed what "
            f"it had been{raised}",
            values={
                "step": found.step,
                "optimizer": optimizer,
                "parameters": [entry.name or "an unnamed tensor" for entry in held[:20]],
                "step_at": found.step_site.place if found.step_site else None,
                "backward_at": found.backward_site.place if found.backward_site else None,
            },
            where=[site for site in (found.step_site, found.backward_site) if site is not None],
            step=found.step,
        )
    ]
