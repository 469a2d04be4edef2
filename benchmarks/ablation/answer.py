"""The small answer that all arms are asked for, and how it is read from whatever a model says."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from weaklink.agent.contract.families import ANY_BOUNDARY, BOUNDARY_OF, FAMILIES, NONE
from weaklink.agent.conversation.messages import Form

LONGEST = 2**18  # characters that are looked at, from the end; a rambling model repeats itself
STARTS = 500  # braces that are tried, from the end
LARGEST_LINE = 10**7
CHOICES = (*FAMILIES, NONE)
NAMED = (*BOUNDARY_OF, *ANY_BOUNDARY)


@dataclass(frozen=True)
class SmallAnswer:
    """What was answered. None: it was not said, or could not be read. `boundary` and `family` are as they were said."""

    boundary: str
    file: str | None = None
    line: int | None = None
    family: str | None = None
    confidence: float | None = None


def small_form() -> Form:
    """The answer as a JSON schema that strict modes accept."""
    properties: dict[str, Any] = {
        "reason": {"type": "string"},
        "boundary": {"type": "string", "enum": list(CHOICES)},
        "file": {"type": ["string", "null"]},
        "line": {"type": ["integer", "null"]},
        "family": {"type": "string", "enum": list(NAMED)},
        "confidence": {"type": "number"},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return Form("diagnosis", schema)


def read_answer(text: str) -> SmallAnswer | None:
    """The last JSON object with a boundary in a text; None where there is none. Never raises."""
    found = [body for body in _objects(text[-LONGEST:]) if isinstance(body.get("boundary"), str)]
    return _answer(found[-1]) if found else None


def objections(answer: SmallAnswer | None, lines: dict[str, int] | None) -> list[str]:
    """What the answer breaks of what it was asked for; empty: nothing.

    Args:
        answer: None: it could not be read.
        lines: How many lines each file of the subject has; None: the answerer was shown no file.
    """
    if answer is None:
        return ["no JSON object with a boundary"]
    found = []
    if answer.boundary not in CHOICES:
        found.append("a boundary that there is not")
    if answer.family not in NAMED:
        found.append("a family that there is not")
    elif BOUNDARY_OF.get(answer.family, answer.boundary) != answer.boundary:
        found.append("a family of another boundary")
    if answer.boundary == NONE and answer.family not in ("none", None):
        found.append("nothing is wrong, and yet a cause")
    if lines is not None and answer.file is not None:
        known = [count for file, count in lines.items() if same_file(file, answer.file)]
        if not known:
            found.append("a file that there is not")
        elif answer.line is not None and answer.line > max(known):
            found.append("a line behind the end of the file")
    return found


def same_file(file: str, said: str) -> bool:
    """Whether a model meant this file: by its path, or by the end of it."""
    file, said = _path(file), _path(said)
    return bool(said) and (file == said or file.endswith(f"/{said}") or said.endswith(f"/{file}"))


def _path(name: str) -> str:
    return re.sub(r"^(\./)+", "", name.strip().replace("\\", "/"))


def _objects(text: str) -> list[dict[str, Any]]:
    decoder, found, end = json.JSONDecoder(strict=False), [], 0  # models break lines inside a text
    for start in [match.start() for match in re.finditer(r"\{", text)][-STARTS:]:
        if start < end:
            continue
        try:
            body, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        found.append(body)
    return [inner for body in found for inner in _unwrapped(body)]


def _unwrapped(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The object itself, and what a model has put into an object of its own around it."""
    return [*(value for value in body.values() if isinstance(value, dict)), body]


def _answer(body: dict[str, Any]) -> SmallAnswer:
    file, line = _place(body.get("file"), body.get("line"))
    family = body.get("family")
    return SmallAnswer(
        boundary=_word(body["boundary"]).upper(),
        file=file,
        line=line,
        family=_word(family).lower() if isinstance(family, str) else None,
        confidence=_share(body.get("confidence")),
    )


def _word(said: str) -> str:
    return re.sub(r"[\s-]+", "_", said.strip()[:200])


def _place(file: object, line: object) -> tuple[str | None, int | None]:
    """`train.py:40` as a file is a file and a line; of a range the first line counts."""
    name = file[:1000] if isinstance(file, str) and file.strip().lower() not in ("", "null", "none") else None
    number = _whole(line)
    if name is not None and (match := re.fullmatch(r"(.*?):(\d{1,7})(?:[-:].*)?", name, re.S)):
        name, number = match[1], number or _whole(match[2])
    return name, number


def _whole(said: object) -> int | None:
    if isinstance(said, str) and (match := re.match(r"\s*(?:line\s*)?(\d{1,7})\b", said, re.I)):
        said = int(match[1])
    if isinstance(said, float) and math.isfinite(said) and said == int(said):
        said = int(said)
    return said if type(said) is int and 0 < said <= LARGEST_LINE else None


def _share(said: object) -> float | None:
    if isinstance(said, str) and (match := re.fullmatch(r"\s*(\d{1,3}(?:\.\d+)?)\s*(%?)\s*", said)):
        said = float(match[1]) / (100 if match[2] else 1)
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        return None
    return float(said) if 0 <= said <= 1 else None  # NaN is neither
