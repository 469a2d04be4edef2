"""Values in a proposal: whether a quoted one is the actual one, and how one is printed in a sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation

from weaklink.collector.evidence import Value

MAX_SHOWN = 160
MAX_LISTED = 12
LONGEST_NUMBER = 64


def agrees(given: Value, actual: Value) -> bool:
    """Whether a quoted value is the actual one: equal, or an actual fraction rounded to the digits that were quoted.

    A number may be quoted as text. Zero is never a rounding of something else, counts are never rounded, and a
    yes or no is not a number.
    """
    if isinstance(given, list) or isinstance(actual, list):
        both = isinstance(given, list) and isinstance(actual, list)
        return both and len(given) == len(actual) and all(map(agrees, given, actual))  # type: ignore[arg-type]
    left, right = _number(given), _number(actual)
    if left is None or right is None:
        return isinstance(given, bool) == isinstance(actual, bool) and given == actual
    if left.is_nan() or right.is_nan():
        return left.is_nan() and right.is_nan()
    return left == right or (isinstance(actual, float) and _rounds_to(right, left))


def _rounds_to(exact: Decimal, printed: Decimal) -> bool:
    digits = len(printed.as_tuple().digits)
    # Both ways to round a final five are seen in print.
    modes = (ROUND_HALF_EVEN, ROUND_HALF_UP)
    return any(Context(prec=digits, rounding=mode, traps=[]).plus(exact) == printed for mode in modes)


def _number(value: Value) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        return None
    try:
        return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except InvalidOperation:
        return None


def finite_number(value: Value) -> bool:
    """Whether it is a number that can go up or down."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def quoted(value: Value, limit: int = MAX_SHOWN) -> str:
    """A value as JSON in which nothing is markup, line break or invisible, cut where it is long.

    Names, texts and messages come from the user's files or from a model: quoted like this they stay data wherever
    they are printed. Where nothing was cut, a JSON parser reads the original back.
    """
    if isinstance(value, list):
        shown = [quoted(item, limit) for item in value[:MAX_LISTED]]
        rest = [f"... {len(value) - MAX_LISTED} more"] if len(value) > MAX_LISTED else []
        return "[" + ", ".join([*shown, *rest]) + "]"
    if isinstance(value, str):
        cut = value if len(value) <= limit else value[:limit] + "..."
        return "".join(map(_inert, json.dumps(cut, ensure_ascii=False)))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**LONGEST_NUMBER:
        return "an integer of absurd length"  # Python refuses to print more than 4300 digits
    return json.dumps(value)


def _inert(character: str) -> str:
    if character.isprintable() and character not in "<>&`|":
        return character
    # As UTF-16, which is how JSON escapes what lies beyond four hexadecimal digits.
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def listed(names: Iterable[str]) -> str:
    """Texts, comma-separated and without brackets, the tail cut where there are many."""
    known = list(dict.fromkeys(names))
    shown = [quoted(name) for name in known[:MAX_LISTED]]
    return ", ".join([*shown, f"{len(known) - MAX_LISTED} more"] if len(known) > MAX_LISTED else shown) or "none"


def filled(text: str | None) -> bool:
    """Whether there is more than white space."""
    return bool(text and text.strip())
