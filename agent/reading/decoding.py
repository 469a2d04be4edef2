"""Bytes of a file as lines that are safe to show: whatever the encoding, nothing in them moves a cursor or hides."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass

from weaklink.collector.table.text import printable

LONGEST_LINE = 8192  # characters of a line that are looked at: masked, searched, shown
LONGEST_SHOWN = 400
_LOOKED_AT = 8192  # bytes that decide whether a file is text
_CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b\b")
_BREAK = re.compile(r"\r\n|\r|\n")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PLAIN_NAME = re.compile(r"[\w .,+=@%~:/()#-]+")


@dataclass(frozen=True)
class Decoded:
    """A text's lines, untouched but for their breaks, and the name of its encoding."""

    lines: list[str]
    encoding: str


def is_text(data: bytes) -> bool:
    """Whether bytes are text: no NUL byte but after a mark of UTF-16 or UTF-32, few other control characters."""
    head = data[:_LOOKED_AT]
    if any(head.startswith(mark) for mark, name in _BOMS if name != "utf-8-sig"):
        return True
    if b"\0" in head:
        return False
    control = len(head) - len(head.translate(None, _CONTROL))
    return control * 20 <= len(head)


def decoded(data: bytes, cut: bool = False) -> Decoded:
    """The lines of a text, as Python counts them: `\\n`, `\\r\\n` and `\\r` end one.

    Args:
        data: The bytes.
        cut: Whether the file goes on; a last line that may be broken off is dropped.
    """
    text, encoding = _text(data, cut)
    lines = _BREAK.split(text)
    if lines and (not lines[-1] or (cut and len(lines) > 1)):
        lines.pop()
    return Decoded(lines, encoding)


def _text(data: bytes, cut: bool) -> tuple[str, str]:
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data.decode(name, "replace"), {"utf-8-sig": "UTF-8"}.get(name, name.upper())
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=not cut), "UTF-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "not UTF-8, read as Latin-1"


def visible(text: str) -> str:
    """A line with everything that is not seen as itself written as an escape; tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "\t".join(printable(part, limit=10 * len(part) + 1) for part in text.split("\t"))


def shown_line(text: str, most: int = LONGEST_SHOWN) -> str:
    """A line as it is shown: escaped, and cut with a mark."""
    if len(text) <= most:
        return visible(text)
    return f"{visible(text[:most])}… [cut: {len(text)} characters]"


def shown_name(name: str) -> str:
    """A name as it is shown: plain where it is plain, else as a JSON string that can be copied into a request."""
    if _PLAIN_NAME.fullmatch(name) and name.isprintable():
        return name
    # A name of bytes that are no UTF-8 holds lone surrogates: JSON's escapes carry them.
    return json.dumps(name).replace("<", "\\u003c").replace(">", "\\u003e").replace("`", "\\u0060")
