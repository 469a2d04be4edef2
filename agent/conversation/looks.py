"""What a model may ask to see before it answers, and what it is shown: files to read, instruments to run."""

from __future__ import annotations

from typing import Literal, Protocol

from weaklink.collector.evidence import Model, Value


class ListFiles(Model):
    """The files of a folder, relative to the root."""

    do: Literal["list"] = "list"
    path: str = "."


class SearchFiles(Model):
    """Lines that hold a text, upper and lower case alike; no pattern language."""

    do: Literal["search"] = "search"
    text: str
    path: str = "."


class ReadLines(Model):
    """Lines of a text file, both ends included, from 1; of a binary file a summary."""

    do: Literal["read"] = "read"
    file: str
    first: int = 1
    last: int | None = None


class RunInstrument(Model):
    """A named instrument on a disposable rerun, at an optimizer step (from 1; None: the instrument's own choice)."""

    do: Literal["instrument"] = "instrument"
    name: str
    step: int | None = None


Look = ListFiles | SearchFiles | ReadLines | RunInstrument


class Looked(Model):
    """One request and what was shown for it.

    A refusal is `ok=False` with the reason in `text`, never an exception: it goes back to whoever asked. `file` is
    relative to the root; `sha256` is that of the file's bytes as they were read.
    """

    do: Literal["list", "search", "read", "instrument"]
    request: dict[str, Value]
    ok: bool
    text: str
    file: str | None = None
    first: int | None = None
    last: int | None = None
    sha256: str | None = None


class Desk(Protocol):
    """Where requests are answered."""

    def look(self, request: Look) -> Looked:
        """What was asked for, or why not. Never raises for anything that a model can ask."""
        ...
