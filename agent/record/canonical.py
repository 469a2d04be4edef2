"""The canonical form: one value, one sequence of bytes, on every machine. Standard library only.

Equal to RFC 8785 (JSON Canonicalization Scheme) on what it lets through, because the three places where
`json.dumps(sort_keys=True)` and the RFC differ are closed:

* Floats become the text of their `repr` (`0.1`, `1e-05`, `-0.0`), NaN and the infinities the words `NaN`, `Infinity`
  and `-Infinity`. None stays null, so NaN and None stay apart; so do `-0.0` and `0.0`, which are different bits.
* Integers stay below 2**53 in magnitude, where every JSON reader still has them exact.
* Keys are ASCII, where the order of code points (Python) and of UTF-16 units (the RFC) is the same.

Half of a surrogate pair, which no UTF-8 file can hold, is written as its escape (`\\ud800` as six characters). A value
that came out of a canonical file has the same canonical bytes as the value that went in.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

MAX_INTEGER = 2**53
MAX_DEPTH = 128

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def canonical_bytes(value: object) -> bytes:
    """The canonical UTF-8 bytes of a value made of None, bool, int, float, str, list, tuple and dict.

    Raises:
        ValueError: An integer of 2**53 or more, a key that is no ASCII text, another type, or more than `MAX_DEPTH`
            levels. The message names the path to it, as in `$.rows[3].step`.
    """
    try:
        plain = _plain(value, 0)
    except _RefusedError as refused:
        raise ValueError(f"{_path(refused.steps)}: {refused.why}") from None
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes, as 64 hex digits. Raises ValueError as `canonical_bytes` does."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def float_text(value: float) -> str:
    """The text a float has in a canonical file. It reads back to the same bits, NaN payloads aside."""
    # float.__repr__, because numpy's float64 is a float whose own repr is `np.float64(0.5)`.
    text = float.__repr__(value)
    return _NOT_FINITE.get(text, text)


def as_number(value: object) -> float | None:
    """The number that was written: from a number itself, or from the text of a float; None for everything else.

    Only the exact text counts: `"0.5"` and `"NaN"` are numbers; `"0.50"`, `"nan"` and `"3"` are somebody's text.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if float_text(number) == value else None


class _RefusedError(Exception):
    """Collects the path on its way up, so that good values (nearly all) pay nothing for it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[str] = []


def _path(steps: list[str]) -> str:
    steps = steps[::-1]
    # A path through a hundred levels helps nobody: keep its two ends.
    if len(steps) > 12:
        steps = [*steps[:8], " … ", *steps[-4:]]
    return "$" + "".join(steps)


def _plain(value: object, depth: int) -> Any:
    # Exact types first: bool is an int, and subclasses (IntEnum, numpy.float64) have a repr of their own.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, dict):
        return _object(value, _deeper(depth))
    if isinstance(value, (list, tuple)):
        return _array(value, _deeper(depth))
    raise _RefusedError(f"a {type(value).__name__} has no canonical form")


def _deeper(depth: int) -> int:
    # Stops long before the interpreter's own recursion limit does, and ends a list that holds itself.
    if depth >= MAX_DEPTH:
        raise _RefusedError(f"nested more than {MAX_DEPTH} levels deep")
    return depth + 1


def _text(value: str) -> str:
    value = str.__str__(value)
    if value.isascii():
        return value
    # Only lone surrogates cannot be encoded; everything else passes unchanged.
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _integer(value: int) -> int:
    if abs(value) >= MAX_INTEGER:
        # No digits in the message: an int may have more of them than Python is willing to print.
        raise _RefusedError("an integer of 2**53 or more is not exact in every JSON reader; write it as text")
    return value


def _object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str) or not key.isascii():
            raise _RefusedError(f"the key {key!a} is not ASCII text")
        try:
            plain[str.__str__(key)] = _plain(item, depth)
        except _RefusedError as refused:
            refused.steps.append(f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]")
            raise
    return plain


def _array(value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    plain = []
    for index, item in enumerate(value):
        try:
            plain.append(_plain(item, depth))
        except _RefusedError as refused:
            refused.steps.append(f"[{index}]")
            raise
    return plain
