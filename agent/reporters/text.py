"""Numbers as the literature prints them, and longer texts made safe for a terminal."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from weaklink.collector.table.text import printable

if TYPE_CHECKING:
    # `weaklink check` prints with this module and answers at once.
    from weaklink.collector.evidence import Value

BRIEF_LIMIT = 200_000
DIGEST_DIGITS = 12
LIST_LIMIT = 8
_DIGEST = re.compile(r"[0-9a-f]{64}")


def printable_lines(text: str, limit: int = BRIEF_LIMIT) -> str:
    """Like `printable`, with line breaks kept: for whole texts that have a block of their own."""
    kept = text[:limit].split("\n")
    # An escape is at most ten characters long, so no line that was kept is cut here.
    shown = "\n".join(printable(line, limit=10 * limit) for line in kept)
    return shown if len(text) <= limit else f"{shown}…"


def number(value: float, *, scientific: bool = False) -> str:
    """A number as the literature prints it: `0.6836`, `1.948e-01`, `nan`, `inf`; integers plain.

    A value that is short as it stands (a learning rate of 0.01) is left as it stands.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == 0:
        return "0"
    if len(repr(value)) <= 6 and not scientific:
        return repr(value)
    if scientific or not 1e-2 <= abs(value) < 1e4:
        return f"{value:.3e}"
    return f"{value:.4f}"


def value_text(value: Value, *, scientific: bool = False) -> str:
    """A measured value as one short text. None is shown as "-" (no value was taken), a SHA-256 by its first digits."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return f"{value[:DIGEST_DIGITS]}…" if is_digest(value) else value
    if isinstance(value, list):
        shown = [item if isinstance(item, str) else number(item, scientific=scientific) for item in value[:LIST_LIMIT]]
        more = len(value) - len(shown)
        return "[" + ", ".join([*shown, f"{more} more"] if more else shown) + "]"
    return number(value, scientific=scientific)


def is_digest(text: str) -> bool:
    """Whether the text is a whole SHA-256: 64 hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def pair_text(control: Value, treatment: Value, *, scientific: bool = False) -> tuple[str, str]:
    """Two values side by side; where shortening would make different values look equal, they are shown whole."""
    left = value_text(control, scientific=scientific)
    right = value_text(treatment, scientific=scientific)
    if left == right and not _equal(control, treatment):
        return _whole(control), _whole(treatment)
    return left, right


def movement_text(control: Value, treatment: Value, *, scientific: bool = False) -> str:
    """`0.6836 -> 0.4099`, or `= 0.6836` where the two are the same value."""
    left, right = pair_text(control, treatment, scientific=scientific)
    return f"= {left}" if _equal(control, treatment) else f"{left} -> {right}"


def plural(count: int, noun: str) -> str:
    """`1 row`, `3 rows`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _equal(control: Value, treatment: Value) -> bool:
    both_nan = control != control and treatment != treatment
    return both_nan or (type(control) is type(treatment) and control == treatment)


def _whole(value: Value) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_whole, value)) + "]"
    return value if isinstance(value, str) else repr(value)
