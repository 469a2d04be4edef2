"""SQLite: tables, their columns, how many rows; opened as a file that nobody writes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from weaklink.agent.reading.decoding import shown_name
from weaklink.agent.reading.summaries.source import Source

_MOST_TABLES = 40
_SECONDS = 2.0
_STEPS = 10_000  # of sqlite's machine between two looks at the clock


def sqlite(source: Source) -> list[str]:
    """Tables with their columns and numbers of rows.

    Raises:
        sqlite3.Error: It is damaged.
    """
    # Through the open file: its name may lead elsewhere by now. `immutable` leaves no lock and no journal behind.
    address = f"file:/dev/fd/{source.file.fileno()}?mode=ro&immutable=1"
    deadline = time.monotonic() + _SECONDS
    with closing(sqlite3.connect(address, uri=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        connection.execute("PRAGMA trusted_schema = OFF")
        # A virtual table runs code of an extension.
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
        ).fetchmany(_MOST_TABLES + 1)
        lines = ["an SQLite database"]
        for (name,) in found[:_MOST_TABLES]:
            lines.append(_table(connection, str(name)))
    return [*lines, "... and more tables"] if len(found) > _MOST_TABLES else lines


def _table(connection: sqlite3.Connection, name: str) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    shown = shown_name(name[:200])
    try:
        rows = connection.execute(f"SELECT count(*) FROM {quoted}").fetchone()[0]
        columns = connection.execute(f"PRAGMA table_info({quoted})").fetchmany(40)
    except sqlite3.Error as error:
        return f"table {shown}  not counted: {error}"
    named = ", ".join(
        f"{shown_name(str(name)[:80])} {shown_name(str(kind)[:40] or 'any')}" for _, name, kind, *_ in columns
    )
    return f"table {shown}  {rows} rows; columns {named}"
