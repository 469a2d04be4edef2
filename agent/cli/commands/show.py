"""`weaklink show`: an incident, as its diagnosis printed it."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.terminal import render_incident


def run(incident: str, json: bool) -> None:
    """Print the incident. A damaged record is shown up to its last good line, and exits 1.

    Raises:
        WeaklinkError: There is no record, or no good line in it.
    """
    read = Incident.read(Path(incident), tolerant=True)
    if json:
        print_json(diagnosis_json(read))
    else:
        write(render_incident(read, width(), color()))
    raise SystemExit(0 if read.damage is None else 1)
