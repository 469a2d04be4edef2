"""`weaklink recover`: whether a repair recovers an incident, on several seeds."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.progress import Progress
from weaklink.agent.record.incident import Incident
from weaklink.agent.recovery.session import RECOVERED, Asked, recover
from weaklink.agent.reporters.recovery import recovery_json, section_of
from weaklink.agent.reporters.terminal import render_sections
from weaklink.collector.workers import this_python


def run(
    incident: str, path: str | None, seeds: int, metric: str | None, python: str | None, deadline: float, json: bool
) -> None:
    """Recover and report; leaves with 0 where the repair recovered the incident, else with 1.

    Raises:
        WeaklinkError: There is nothing to recover, or not here.
    """
    asked = Asked(None if path is None else Path(path), seeds, metric, python or this_python(), deadline)
    found = recover(Incident.read(Path(incident)), asked, Progress())
    assert found.recovery is not None, "it was recorded"
    if json:
        print_json(recovery_json(found))
    else:
        write(render_sections([section_of(found.recovery, found.recovery.limits)], width(), color()))
    raise SystemExit(0 if found.recovery.status.recovery == RECOVERED else 1)
