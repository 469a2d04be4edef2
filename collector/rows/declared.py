"""What the user declared to be trained, and what stands against it before anything is stepped."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.intended import frozen, nearest, trainable, unmatched
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.intent import IntentRecord
from weaklink.collector.watching.parameters import ParameterEntry

ROW = "DEPENDENCY/declared"


def rows(run: Observation) -> list[Row]:
    """Parameters declared trainable that are frozen, and patterns that mean nothing."""
    return [_declared(run)]


def _declared(run: Observation) -> Row:
    declared, text = run.declared, "parameters declared to be trained or to rest"
    patterns = [*declared.expected, *declared.frozen]
    if not patterns:
        reason = "nothing was declared (--trainable, --frozen)"
        return Row(id=ROW, status="not_measured", text=text, reason=reason)
    missing = [] if run.given or run.in_process else unmatched(run, patterns)
    complaint = "; ".join(f"{pattern!r} matches no parameter, nearest: {nearest(run, pattern)}" for pattern in missing)
    meant = trainable(run)
    asleep = [entry for entry in meant if _asleep(run, entry)]
    if asleep:
        return _frozen(run, meant, asleep, complaint)
    if missing:
        return Row(id=ROW, status="not_measured", text=text, reason=complaint)
    said = [f"{len(meant)} declared to be trained are trainable"] if declared.expected else []
    said += [f"{len(frozen(run))} are declared to rest"] if declared.frozen else []
    return Row(
        id=ROW,
        status="pass",
        text=", ".join(said),
        values={"declared": len(meant), "frozen": []},
    )


def _asleep(run: Observation, entry: ParameterEntry) -> bool:
    """Frozen whenever it was looked at, and never moved: one that is frozen at the end may have been trained before."""
    present = entry.in_model or (not entry.ever_in_model and bool(entry.places))
    thawed = entry.serial in run.record(IntentRecord).thawed
    return present and not entry.requires_grad and not thawed and not run.moved(entry)


def _frozen(run: Observation, meant: list[ParameterEntry], asleep: list[ParameterEntry], complaint: str) -> Row:
    text = f"{len(asleep)} of {len(meant)} parameters declared to be trained are frozen: {names(asleep)}"
    # What was cut off might have thawed them later.
    text += "" if run.whole else "; the run was cut off"
    made = [site for entry in asleep[:3] for site in (entry.created_by, entry.created) if site is not None]
    return Row(
        id=ROW,
        status="fail" if run.whole else "evidence",
        basis="declared" if run.whole else None,
        text="; ".join(part for part in (text, complaint) if part),
        values={"declared": len(meant), "frozen": [entry.name or "" for entry in asleep[:20]]},
        where=list({site.place: site for site in made}.values())[:3] if run.whole else [],
    )
