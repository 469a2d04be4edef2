"""`weaklink check`: whether a record is what its writer left. Loads json and hashlib, nothing heavier."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.cli.output import print_json, write
from weaklink.agent.record.check import CheckReport, check_record
from weaklink.collector.table.text import printable


def run(incident: str, head: str | None, json: bool) -> None:
    """Check and report; exits 0 when intact, 1 when damaged.

    Raises:
        WeaklinkError: There is no record.
    """
    found = check_record(Path(incident), expected_head=head)
    if json:
        print_json(_as_json(found))
    else:
        write(_as_text(found) + "\n")
    raise SystemExit(0 if found.intact else 1)


def _as_json(found: CheckReport) -> dict[str, object]:
    return {
        "schema": "weaklink.check/1",
        "record": str(found.path),
        "intact": found.intact,
        "events": found.events,
        "head": found.head,
        "bad_line": found.bad_line,
        "problem": found.problem,
        "frozen": found.frozen,
        "note": found.note,
    }


def _as_text(found: CheckReport) -> str:
    lines = [f"{'intact' if found.intact else 'DAMAGED'}  {printable(str(found.path))}  {found.events} events"]
    if found.problem:
        place = f"line {found.bad_line}: " if found.bad_line is not None else ""
        lines.append(f"  {place}{printable(found.problem, 1000)}")
    if found.head:
        lines.append(f"  head   {found.head}")
    for frozen in found.frozen:
        lines.append(f"  frozen claim {frozen['claim']}")
        lines.append(f"         context {frozen['context']}")
    lines.append(f"  {found.note}")
    return "\n".join(lines)
