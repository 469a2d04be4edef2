"""An answer that somebody hands in, out of a chat window or by a coding agent. Nobody is asked for another one."""

from __future__ import annotations

from dataclasses import dataclass

# A whole answer has some ten thousand characters; what is larger is something else.
LARGEST_ANSWER = 2**20  # bytes
LONGEST_LABEL = 200  # characters


@dataclass(frozen=True)
class Given:
    """One answer, word for word.

    Attributes:
        name: How it came here, which is the advisor's name in the record: `paste` or `mcp`.
        text: What was handed in, whole.
        said_by: Who is said to have answered. Nothing here can check that.
    """

    name: str
    text: str
    said_by: str | None = None
