"""Bytes of an answer, cut into the objects it is made of: server-sent events, or one JSON object where none streams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from weaklink.agent.endpoint.faults import WireFault

LONGEST_LINE = 4 * 2**20  # bytes of one event, or of an answer in one piece
LONGEST_STREAM = 64 * 2**20  # bytes on the wire; a token takes some 300 of them
_NOT_CHAT = "is it an OpenAI-compatible endpoint, and does its base URL end in /v1?"
_BROKEN = "look into the server's log; another version of it may help."


def objects(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of an answer, in order.

    Args:
        pieces: Its bytes, cut anywhere.

    Raises:
        WireFault: It is no stream and no JSON object, is not UTF-8, or is longer than any answer.
    """
    lines = _lines(pieces)
    first = next((line for line in lines if line.strip()), b"").removeprefix(b"\xef\xbb\xbf")
    if not first:
        raise WireFault("The answer is empty: status 200, and not one byte.", _NOT_CHAT)
    begin = first.lstrip()
    if begin.startswith(b"{"):
        yield _object(b"\n".join(_bounded(chain([first], lines))))
    elif begin.startswith((b"data:", b":", b"event:", b"id:", b"retry:")):
        yield from _events(chain([first], lines))
    elif begin.startswith(b"<"):
        raise WireFault("The endpoint answers with a web page.", _NOT_CHAT)
    else:
        raise WireFault("The answer is neither a stream of events nor JSON.", _NOT_CHAT)


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    data: list[bytes] = []
    for line in chain(lines, [b""]):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            whole = b"\n".join(data)
            data = []
            if whole.strip() == b"[DONE]":
                return
            yield _object(whole)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise WireFault("The answer is not UTF-8.", _BROKEN) from error
    except (ValueError, RecursionError) as error:
        raise WireFault("A part of the answer is broken JSON.", _BROKEN) from error
    if not isinstance(found, dict):
        raise WireFault("A part of the answer is no JSON object.", _BROKEN)
    return found


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends; the last one may have none."""
    rest = bytearray()
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > LONGEST_STREAM:
            raise _too_long(LONGEST_STREAM)
        *whole, tail = piece.split(b"\n")
        for line in whole:
            rest += line
            yield bytes(rest).removesuffix(b"\r")
            rest.clear()
        rest += tail
        if len(rest) > LONGEST_LINE:
            raise _too_long(LONGEST_LINE)
    if rest:
        yield bytes(rest)


def _bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for line in lines:
        total += len(line)
        if total > LONGEST_LINE:
            raise _too_long(LONGEST_LINE)
        yield line


def _too_long(limit: int) -> WireFault:
    return WireFault(f"The answer is longer than {limit // 2**20} MiB and was dropped.", "ask another model.")
