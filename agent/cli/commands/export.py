"""`weaklink export`: an incident as a file for somebody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from weaklink.agent.cli.output import write
from weaklink.agent.record.incident import Incident
from weaklink.collector.errors import StorageError, UsageError


def run(incident: str, format: str, out: str | None) -> None:
    """Write the export; without `--out` into the incident's own folder.

    Raises:
        UsageError: An unknown format.
        StorageError: The file cannot be written.
        WeaklinkError: There is no record, or it is damaged.
    """
    if format not in _FORMATS:
        raise UsageError(f"There is no format {format!r}.", about="--format", hint=f"one of: {', '.join(_FORMATS)}.")
    read = Incident.read(Path(incident))
    text = _FORMATS[format](read)
    if out == "-":
        write(text)
        return
    path = Path(out) if out else read.folder / f"incident.{format}"
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(
            f"The export cannot be written: {error.strerror}.", about=str(path), hint="choose another --out."
        ) from error
    write(f"{path}\n")


def _json(incident: Incident) -> str:
    from weaklink.agent.reporters.json_report import receipt_json

    return json.dumps(receipt_json(incident), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _markdown(incident: Incident) -> str:
    from weaklink.agent.reporters.markdown import render_markdown

    return render_markdown(incident)


def _html(incident: Incident) -> str:
    from weaklink.agent.reporters.html import render_html

    return render_html(incident)


_FORMATS: dict[str, Callable[[Incident], str]] = {"json": _json, "md": _markdown, "html": _html}
