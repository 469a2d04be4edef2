"""Text that is safe on a terminal, whatever the user's names and messages hold."""

from __future__ import annotations

import unicodedata

NAME_LIMIT = 400
PROSE_LIMIT = 4_000
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, limit: int = NAME_LIMIT) -> str:
    """Text that cannot move the cursor, recolour, reorder or break a line; cut at `limit` characters with "…".

    Control characters, ANSI escapes, bidirectional and zero-width controls, line separators, private and unassigned
    characters and lone surrogates become visible escapes such as `\\x1b`.
    """
    pieces: list[str] = []
    used = 0
    for char in text:
        piece = _visible(char)
        if used + len(piece) > limit:
            return _cut(pieces, used, limit)
        pieces.append(piece)
        used += len(piece)
    return "".join(pieces)


def _visible(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _cut(pieces: list[str], used: int, limit: int) -> str:
    while pieces and used + 1 > limit:
        used -= len(pieces.pop())
    return "".join(pieces) + "…"
