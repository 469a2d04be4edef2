"""The JSON objects in whatever a model wrote around them: prose, fences, thinking, drafts.

JSON is read as it is defined, line breaks within texts aside. What is almost JSON (a trailing comma, a comment, curly
quotes) is not mended: a guess at what was meant would be our words, not the model's. It is told what is wrong instead.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weaklink.agent.contract.values import quoted

# Characters looked through for objects that are none; a failed start counts as a thousand. Without it, a text made of
# opening braces alone would take hours.
MOST_WORK = 2**22
_A_START = 2**10

_THOUGHT = re.compile(r"</think(?:ing)?>|\[/THINK\]")
_MARK = re.compile(r'\\.|["{}]', re.DOTALL)
_TRAILING = re.compile(r",\s*[}\]]")
_CURLY = "“”„‟‘’"


@dataclass(frozen=True)
class Found:
    """One object of a text.

    Attributes:
        start: Where its brace stands.
        end: Behind its last character; the end of the text where it is never closed.
        closed: Whether its braces are closed.
        value: The object; None where it is no JSON.
        problem: Why it is none, one sentence.
    """

    start: int
    end: int
    closed: bool
    value: dict[str, Any] | None
    problem: str | None = None


def objects(text: str) -> list[Found]:
    """The outermost objects of a text in their order, broken ones among them; inner ones where one is never closed.

    What stands before the end of a model's thinking is left out.
    """
    found = list(_objects(text))
    closed = [each for each in found if each.closed]  # in order, and none within another
    starts = [each.start for each in closed]
    thought = 0
    for mark in _THOUGHT.finditer(text):
        before = bisect(starts, mark.start())
        if not before or closed[before - 1].end <= mark.start():
            thought = mark.end()
    return [each for each in found if each.start >= thought]


def _objects(text: str) -> Iterator[Found]:
    position, work = 0, 0
    while work < MOST_WORK:
        start = text.find("{", position)
        if start < 0:
            return
        try:
            value, position = _DECODER.raw_decode(text, start)
            yield Found(start, position, True, value)
            continue
        except json.JSONDecodeError as error:
            problem = _problem(text, start, error)
        except _TwiceError as error:
            problem = f"The key {quoted(error.key, 60)} stands twice in one object; every key stands once."
        except RecursionError:
            problem = "It is nested deeper than any answer."
        end = _end(text, start)
        yield Found(start, end or len(text), end is not None, None, problem)
        position = end or start + 1
        work += (end or len(text)) - start + _A_START


def _end(text: str, start: int) -> int | None:
    """Behind the brace that closes the one at `start`; None where none does."""
    depth, inside = 0, False
    for match in _MARK.finditer(text, start):
        mark = match.group()
        if mark == '"':
            inside = not inside
        elif inside or len(mark) > 1:
            continue
        else:
            depth += 1 if mark == "{" else -1
            if depth == 0:
                return match.end()
    return None


def _problem(text: str, start: int, error: json.JSONDecodeError) -> str:
    place = error.pos
    near = text[place : place + 2]
    comma = text.rfind(",", start, place + 1)
    trailing = _TRAILING.match(text, comma) if comma >= 0 else None
    if trailing is not None and trailing.end() > place:
        what = "a comma stands before a closing bracket; leave it out"
    elif near.startswith("#") or near in ("//", "/*"):
        what = "JSON has no comments; leave them out"
    elif any(mark in text[max(start, place - 1) : place + 1] for mark in _CURLY):
        what = 'curly quotes are no JSON; write straight ones (") around every key and every text'
    elif near.startswith("'"):
        what = 'single quotes are no JSON; write double ones (") around every key and every text'
    elif text.startswith(("None", "True", "False"), place):
        what = "None, True and False are Python's; write null, true or false"
    elif not text[place:].strip() or error.msg.startswith("Unterminated"):
        what = "it ends before its last quote, ] or } is closed; write the whole object, with shorter sentences"
    else:
        what = error.msg[:1].lower() + error.msg[1:]
    excerpt = quoted(text[max(start, place - 24) : place + 24], 80)
    return f"The object is no JSON: {what} (near {excerpt})."


class _TwiceError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _TwiceError(key)
        made[key] = value
    return made


def _whole(text: str) -> int:
    # Python refuses to read thousands of digits. The first ones are enough to know that there are too many.
    return int(text[:24])


# Not strict: models break lines within texts, and a control character is as harmless as any other data.
_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_whole, strict=False)
