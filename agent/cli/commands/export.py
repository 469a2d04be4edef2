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
        UsageError: An unknown format, or no test can be made of it.
        StorageError: The file cannot be written.
        WeaklinkError: There is no record, or it is damaged.
    """
    if format not in _FORMATS:
        raise UsageError(f"There is no format {format!r}.", about="--format", hint=f"one of: {', '.join(_FORMATS)}.")
    read = Incident.read(Path(incident))
    path = Path(out) if out else read.folder / _NAMES.get(format, f"incident.{format}")
    text = _FORMATS[format](read, None if out == "-" else path)
    if out == "-":
        write(text)
        return
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(
            f"The export cannot be written: {error.strerror}.", about=str(path), hint="choose another --out."
        ) from error
    write(f"{path}\n")


def _json(incident: Incident, path: Path | None) -> str:
    from weaklink.agent.reporters.json_report import receipt_json

    return json.dumps(receipt_json(incident), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _markdown(incident: Incident, path: Path | None) -> str:
    from weaklink.agent.reporters.markdown import render_markdown

    return render_markdown(incident)


def _html(incident: Incident, path: Path | None) -> str:
    from weaklink.agent.reporters.html import render_html

    return render_html(incident)


def _pytest(incident: Incident, path: Path | None) -> str:
    from weaklink.agent.reporters.pytest_report import render_pytest

    return render_pytest(incident, None if path is None else path.parent)


def _recording(incident: Incident, path: Path | None) -> str:
    from weaklink.agent.conversation.recordings import recording_of, recording_text

    return recording_text(recording_of(incident))


_FORMATS: dict[str, Callable[[Incident, Path | None], str]] = {
    "json": _json,
    "md": _markdown,
    "html": _html,
    "pytest": _pytest,
    "recording": _recording,
}
_NAMES = {"pytest": "test_incident.py", "recording": "recording.json"}
