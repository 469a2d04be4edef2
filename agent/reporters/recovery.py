"""A repair held against its baseline: one table, the sentence that decides, and what it leaves open."""

from __future__ import annotations

import math
from typing import Any

from weaklink.agent.record.recoveries import RecoveryFinished, RecoveryRun, Side
from weaklink.agent.recovery.decision import ALWAYS, metric_range
from weaklink.agent.reporters.blocks import Block, Bullets, Paragraph, Section, Table
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.reading import recovery_of
from weaklink.agent.reporters.text import number
from weaklink.agent.reporters.view import IncidentView

SCHEMA = "weaklink.recovery/1"
SIDES: tuple[tuple[Side, str], ...] = (("baseline", "before"), ("repair", "repaired"))


def recovery_section(incident: IncidentView) -> Section | None:
    """Both sides in one table, with what they decide, and the limits that are not those of every incident."""
    found = recovery_of(incident)
    if found is None:
        return None
    return section_of(found, [text for text in found.limits if text not in ALWAYS])


def section_of(found: RecoveryFinished, limits: list[str]) -> Section:
    """The table, the sentences and these limits."""
    blocks: list[Block] = [
        Paragraph(f"{found.status.recovery}: {' '.join(found.reasons)}"),
        Table(_head(found), tuple(_rows(found))),
        Bullets(tuple(limits)),
    ]
    return Section("Recovery", tuple(blocks))


def recovery_json(incident: IncidentView) -> dict[str, Any]:
    """The one object `weaklink recover --json` prints."""
    found = recovery_of(incident)
    assert found is not None, "there is a recovery once it was recorded"
    return {
        "schema": SCHEMA,
        "incident": str(incident.folder),
        "row": found.row,
        "status": plain(found.status),
        "seeds": sorted({run.seed for run in found.runs}),
        "metric": None if found.metric is None else plain(found.metric),
        "baseline": {"folder": incident.opened.folder, **_side(found, "baseline")},
        "repair": {"folder": found.folder, "subject": plain(found.subject), **_side(found, "repair")},
        "reasons": found.reasons,
        "limits": found.limits,
    }


def _side(found: RecoveryFinished, side: Side) -> dict[str, Any]:
    between = metric_range(found.runs, side, found.metric) if found.metric is not None else None
    return {
        "metric": None if between is None else [_plain(between.low), _plain(between.high)],
        "runs": [plain(run, exclude={"side", "rows"}) for run in _of(found, side)],
    }


def _plain(value: float) -> float | str:
    """What strict JSON has a number for, and infinity as the word of the evidence file."""
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _head(found: RecoveryFinished) -> tuple[str, ...]:
    return ("measured", "side", *(f"seed {run.seed}" for run in _of(found, "baseline")), "range")


def _rows(found: RecoveryFinished) -> list[tuple[str, ...]]:
    rows = [(found.row, word, *map(_status, _of(found, side)), "") for side, word in SIDES]
    if found.metric is not None:
        better = {"max": "more is better", "min": "less is better"}[found.metric.direction]
        for side, word in SIDES:
            between = metric_range(found.runs, side, found.metric)
            text = "not measured" if between is None else f"{number(between.low)} to {number(between.high)}"
            values = [_number(run.metric) for run in _of(found, side)]
            rows.append((f"{found.metric.name} ({better})", word, *values, text))
    for side, word in SIDES:
        values = [_number(run.loss_last) for run in _of(found, side)]
        rows.append(("last training loss (decides nothing)", word, *values, ""))
    return rows


def _of(found: RecoveryFinished, side: Side) -> list[RecoveryRun]:
    return [run for run in found.runs if run.side == side]


def _status(run: RecoveryRun) -> str:
    if run.raised is not None:
        return f"raised {run.raised.type}"
    return "not run" if run.ended is None else run.row.replace("_", " ")


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)
