"""`weaklink amend`: a labelled correction at the end of a record. Nothing that stands there is edited."""

from __future__ import annotations

from pathlib import Path

from weaklink.agent.cli.output import print_json, write
from weaklink.agent.record.bodies import Amended
from weaklink.agent.record.chain import RecordWriter
from weaklink.collector.errors import UsageError

AMENDED_SCHEMA = "weaklink.amended/1"


def run(incident: str, text: str, of: int | None, json: bool) -> None:
    """Append the amendment, and print the record's new head.

    Raises:
        UsageError: The text is empty, or there is no such event.
        WeaklinkError: There is no record, it is damaged, or it cannot be written.
    """
    if not text.strip():
        raise UsageError("An amendment says something.", about="TEXT")
    with RecordWriter.resume(Path(incident)) as writer:
        last = writer.count - 1
        number = last if of is None else of
        if not 0 <= number <= last:
            raise UsageError(f"There is no event {number}.", about="--of", hint=f"they are numbered 0 to {last}.")
        head = writer.append("incident.amended", Amended(of=number, text=text), durable=True)
    if json:
        print_json({"schema": AMENDED_SCHEMA, "of": number, "text": text, "head": head})
    else:
        write(f"amended event {number}; the record's head is now {head}\n")
