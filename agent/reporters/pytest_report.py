"""An incident as a regression test: one file that runs the same command and fails where the row diverges again."""

from __future__ import annotations

import os
from pathlib import Path

from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.next_step import subject_words
from weaklink.agent.reporters.reading import effective_divergence
from weaklink.collector.declared import Intent
from weaklink.collector.errors import UsageError
from weaklink.collector.table.text import printable

_TEMPLATE = '''"""{title}

Incident {incident}, claim {claim}.
Written by `weaklink export --format pytest`; it needs pytest, weaklink and torch. The command runs in a scratch copy of
FOLDER, or of the folder that the variable WEAKLINK_FOLDER names.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROW = {row}
COMMAND = {command}
FOLDER = Path(os.environ.get("WEAKLINK_FOLDER") or {folder})


@pytest.mark.parametrize("seed_offset", [0, 1])
def test_the_row_does_not_diverge_again(seed_offset: int) -> None:
    ledger = [sys.executable, "-m", "weaklink.agent", "ledger", "--json", "--seed-offset", str(seed_offset)]
    done = subprocess.run([*ledger, *COMMAND], cwd=FOLDER, capture_output=True, text=True, check=False)
    chain = json.loads(done.stdout)
    assert chain["schema"] == "weaklink.chain/1", chain.get("message", done.stderr)
    assert chain["outcome"]["raised"] is None
    row = next((row for row in chain["rows"] if row["id"] == ROW), None)
    assert row is not None, f"the chain has no row {{ROW}}"
    # A row that was not measured shows nothing, and passes nothing.
    assert row["status"] in ("pass", "evidence"), row["text"]
'''


def render_pytest(incident: Incident, beside: Path | None) -> str:
    """The test's source.

    Args:
        incident: With a diverging row, of a script, module or factory.
        beside: The folder that the file will stand in; None: unknown, and the recorded folder is named absolutely.

    Raises:
        UsageError: No row diverges, or the incident was measured in a process of the user's own.
    """
    row = effective_divergence(incident)
    subject, about = incident.opened.subject, str(incident.folder)
    if row is None:
        raise UsageError("No row of this incident diverges, so there is nothing to keep from coming back.", about=about)
    if subject.kind == "process":
        raise UsageError("This was measured inside a process of your own; a test cannot run it again.", about=about)
    rule = incident.options.get("rule")
    words = subject_words(subject, rule if isinstance(rule, str) else None, Intent.model_validate(incident.declared))
    return _TEMPLATE.format(
        title=_docstring(f"{row.id} does not diverge again in `{subject.command}`."),
        incident=_docstring(incident.opened.id),
        claim=incident.frozen.claim_sha256 if incident.frozen is not None else "none: no prediction was frozen",
        row=_literal(row.id),
        command=_listed(words),
        folder=_folder(Path(incident.opened.folder), beside),
    )


def _docstring(text: str) -> str:
    """Text of a record inside a docstring: it cannot end it, and no escape of it is read."""
    return printable(text, 500).replace("\\", "\\\\").replace('"', '\\"')


def _listed(words: list[str]) -> str:
    """A list as source, one line if it fits."""
    line = "[" + ", ".join(map(_literal, words)) + "]"
    return line if len(line) < 100 else "[\n" + "".join(f"    {_literal(word)},\n" for word in words) + "]"


def _literal(text: str) -> str:
    """The text as a Python literal, in double quotes where it holds none of either kind."""
    quoted = ascii(text)
    return quoted if "'" in text or '"' in text else f'"{quoted[1:-1]}"'


def _folder(folder: Path, beside: Path | None) -> str:
    if beside is None:
        return _literal(str(folder))
    try:
        relative = os.path.relpath(folder, beside.resolve())
    except ValueError:  # another drive
        return _literal(str(folder))
    return f"Path(__file__).resolve().parent / {_literal(relative)}"
