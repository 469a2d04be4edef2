"""Secrets in a text, replaced before anybody else sees it: keys by their shape, values by the name they are given.

A mask that hides ordinary code makes a reader blind, so a name alone masks only what is written as a value: a quoted
text in code, the rest of the line in a configuration. A name that is secret only now and then (`token`, `key`) masks
what looks drawn at random.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from weaklink.agent.reading.secret_names import MASK, is_secret, is_telling, looks_random, names_secrets
from weaklink.agent.reading.secret_shapes import (
    BETWEEN_TEXTS,
    BLOCK_BEGIN,
    BLOCK_END,
    CURL,
    ELEMENT,
    FLOW,
    GIVEN,
    HEADER,
    HINTS,
    HOOK,
    LINE,
    NETRC,
    OF_A_BLOCK,
    OF_A_KEY,
    OPENS_PIECES,
    OPENS_SCALAR,
    OPTION,
    PASSED,
    PIECE,
    QUERY,
    QUOTED_PIECE,
    SCHEME,
    SHAPES,
    TEMPLATE,
    URL,
)

_LOOKED_AT_ONCE = 256  # lines
_LONGEST_BLOCK = 400  # lines


def masked_lines(lines: Sequence[str], code: bool) -> list[str]:
    """The same lines with secrets replaced by `MASK`; blocks that go over several lines included.

    Args:
        lines: All lines of a text from its first on, each bounded in length by the caller.
        code: Whether it is program text, where only what is quoted is a value.
    """
    masked: list[str] = []
    block = 0  # lines that a private key may still have
    scalar: int | None = None  # indentation of the name whose value stands on the lines below
    pieces = ""  # the name whose value's string literals follow
    closing = ""  # the quotes that end a text over several lines
    for line, hinted in zip(lines, _hinted(lines), strict=True):
        if not hinted and not (block or closing or pieces or scalar is not None):
            masked.append(line)
            continue
        if block and OF_A_BLOCK.match(line):
            ends = BLOCK_END.search(line)
            block = 0 if ends else block - 1
            masked.append(MASK + line[ends.end() :] if ends else MASK)
            continue
        block = 0
        if closing:
            _, found, after = line.partition(closing)
            masked.append(f"{MASK}{found}{after}" if found else MASK)
            closing = "" if found else closing
            continue
        if scalar is not None:
            if line.strip() and _indent(line) > scalar:
                masked.append(line[: _indent(line)] + MASK)
                continue
            scalar = scalar if not line.strip() else None
        if pieces:
            pieces = pieces if PIECE.match(line) else ""
            if pieces:
                masked.append(_pieces_masked(line, pieces))
                continue
        masked.append(masked_text(line, code))
        begun = list(BLOCK_BEGIN.finditer(line))
        if begun and not BLOCK_END.search(line, begun[-1].end()):
            block = _LONGEST_BLOCK
        scalar = scalar if code else _opened_scalar(line, scalar)
        opens = OPENS_PIECES.search(line)
        pieces = opens["name"] if opens is not None and is_telling(opens["name"]) else ""
        closing = _left_open(line)
    return masked


def masked_text(line: str, code: bool) -> str:
    """One line with its secrets replaced by `MASK`."""
    if not _may_hold(line):
        return line
    line = _block_masked(line)
    line = SHAPES.sub(MASK, line)
    line = HOOK.sub(rf"\1{MASK}", line)
    line = URL.sub(_in_url, line)
    line = CURL.sub(rf"\1{MASK}", line)
    line = SCHEME.sub(_after_scheme, line)
    for pattern in (GIVEN, PASSED):
        line = pattern.sub(_in_quotes, line)
    for pattern in (OPTION, QUERY, ELEMENT, NETRC):
        line = pattern.sub(_bare, line)
    line = HEADER.sub(_bare_if_random, line)
    if code and not line.lstrip().startswith(("#", "//")):
        return line
    line = LINE.sub(_bare, line)
    return FLOW.sub(_bare, line)


def _hinted(lines: Sequence[str]) -> Iterator[bool]:
    """For each line whether it may hold a secret."""
    for start in range(0, len(lines), _LOOKED_AT_ONCE):
        part = lines[start : start + _LOOKED_AT_ONCE]
        some = _may_hold("\n".join(part))
        yield from (some and _may_hold(line) for line in part)


def _may_hold(text: str) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in HINTS)


def _in_quotes(found: re.Match[str]) -> str:
    before = found.groupdict().get("before") or ""
    head = f"{before}{found['name']}{found['between']}{found['prefix']}{found['quote']}"
    if found["value"].startswith("-") and before.endswith("--"):
        return found[0]  # add_argument("--password", "-p")
    if BETWEEN_TEXTS.match(found["value"]):
        return found[0]  # print("the password: ", end="")
    return f"{head}{MASK}{found['end']}" if is_secret(found["name"], found["value"]) else found[0]


def _block_masked(line: str) -> str:
    begun = BLOCK_BEGIN.search(line)
    if begun is None:
        return line
    ends = BLOCK_END.search(line, begun.end())
    rest = line[ends.end() :] if ends else line[begun.end() :]
    return line[: begun.start()] + MASK + ("" if ends is None and OF_A_KEY.search(rest) else rest)


def _pieces_masked(line: str, name: str) -> str:
    return QUOTED_PIECE.sub(
        lambda found: f"{found[1]}{MASK}{found[3]}" if is_secret(name, found[2]) else found[0], line
    )


def _in_url(found: re.Match[str]) -> str:
    scheme, who = found.groups()
    user, colon, password = who.partition(":")
    if not (password or looks_random(user)) or TEMPLATE.search(password or user):
        return found[0]
    return f"{scheme}{MASK}@" if not colon else f"{scheme}{user}:{MASK}@"


def _bare(found: re.Match[str]) -> str:
    if MASK in found["value"] or not is_secret(found["name"], found["value"]):
        return found[0]
    return f"{found['before']}{found['name']}{found['between']}{MASK}"


def _bare_if_random(found: re.Match[str]) -> str:
    return _bare(found) if looks_random(found["value"]) else found[0]


def _after_scheme(found: re.Match[str]) -> str:
    scheme, space, value = found.groups()
    if scheme.lower() == "bearer" or looks_random(value.rstrip("=")) or value.endswith("="):
        digits = any(map(str.isdigit, value))
        return f"{scheme}{space}{MASK}" if digits or value.endswith("=") else found[0]
    return found[0]


def _opened_scalar(line: str, scalar: int | None) -> int | None:
    opened = OPENS_SCALAR.match(line)
    if opened is None:
        return scalar
    return len(opened["indent"]) if names_secrets(opened["name"]) else None


def _left_open(line: str) -> str:
    """The triple quotes that a masked value opened on this line and did not close."""
    for found in GIVEN.finditer(line):
        if len(found["quote"]) == 3 and not found["end"] and is_secret(found["name"], found["value"] or "x"):
            return found["quote"]
    return ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
