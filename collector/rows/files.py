"""TASK/files: what the script read, for whoever looks for a fault that no source shows."""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.files import FilesRecord

SHOWN = 6


def rows(run: Observation) -> list[Row]:
    """One row: settings and data, in the order in which they were read."""
    record = run.record(FilesRecord)
    settings, data = record.configuration(), record.data()
    if not settings and not data:
        return [
            Row(
                id="TASK/files",
                status="not_measured",
                text="files the script read",
                reason="it opened none while it was watched",
            )
        ]
    count = len(record.files) + record.uncounted
    named = [site.file for site in [*settings, *data]]
    rest = count - len(named[:SHOWN])
    text = ", ".join(named[:SHOWN]) + (f" and {rest} more" if rest else "")
    return [
        Row(
            id="TASK/files",
            status="evidence",
            text=f"read {text}",
            values={
                "files": count,
                "configuration": [site.file for site in settings[:20]],
                "data": [site.file for site in data[:20]],
            },
        )
    ]
