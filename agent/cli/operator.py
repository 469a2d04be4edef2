"""The operator at the terminal: one question, one line of answer, or nothing."""

from __future__ import annotations

import sys

from weaklink.agent.continuing import LONGEST_FACT
from weaklink.collector.table.text import printable


def at_the_terminal(question: str) -> str | None:
    """Put a model's question; an empty line, or no terminal on both sides, leaves it open (None).

    The question is a model's words: nothing in it reaches the terminal as a control character.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"The model asks: {printable(question, 1000)}", file=sys.stderr)
    print("Your answer (an empty line leaves the question open): ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    return answer[:LONGEST_FACT] or None
