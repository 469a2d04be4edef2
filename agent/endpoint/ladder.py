"""Ways to ask for structured output, the strictest first, and when to try the next one.

No two servers take the same request. Each is asked for all it may know, and what it refuses by name is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weaklink.agent.conversation.messages import Form, Message
from weaklink.agent.endpoint.faults import Refusal

RUNGS = ("json_schema strict", "json_schema", "tool", "json_object schema", "json_object", "plain")
# In the order in which they are looked for in a refusal; each may be left out.
OPTIONAL = ("stream_options", "temperature", "seed", "max_completion_tokens", "max_tokens")

_REFUSES = (400, 422, 500, 501)  # some servers answer 500 where they do not know a parameter's value
# What a refusal speaks of that is about a rung, and not about the rest of the request.
_FORMAT = re.compile(r"response.?format|json|schema|structured|grammar|\bstrict\b|guided")
_TOOL = re.compile(r"tool|function")
_TOO_LARGE = ("context", "too large", "at most", "exceed", "maximum")


@dataclass(frozen=True)
class Way:
    """A rung, and the optional parameters that the endpoint does not take."""

    rung: str = RUNGS[0]
    left_out: frozenset[str] = frozenset()

    def lower(self) -> Way | None:
        """The next rung; None from the last one."""
        place = RUNGS.index(self.rung) + 1
        return Way(RUNGS[place], self.left_out) if place < len(RUNGS) else None


def request_body(way: Way, model: str, messages: Sequence[Message], form: Form, answer_tokens: int) -> dict[str, Any]:
    """The request: a JSON object, its texts free of lone surrogates, which no server takes."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": each.role, "content": _sendable(each.content)} for each in messages],
        "stream": True,
    }
    optional = {
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "seed": 0,
        "max_completion_tokens": answer_tokens,
    }
    if "max_completion_tokens" in way.left_out:
        optional["max_tokens"] = answer_tokens
    body.update({name: value for name, value in optional.items() if name not in way.left_out})
    return body | _shape(way.rung, form)


def _shape(rung: str, form: Form) -> dict[str, Any]:
    if rung.startswith("json_schema"):
        schema: dict[str, Any] = {"name": form.name, "schema": form.schema}
        if rung.endswith("strict"):
            schema["strict"] = True
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if rung == "tool":
        function = {"name": form.name, "description": "Give the answer.", "parameters": form.schema}
        return {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": form.name}},
        }
    if rung == "json_object schema":
        return {"response_format": {"type": "json_object", "schema": form.schema}}
    return {"response_format": {"type": "json_object"}} if rung == "json_object" else {}


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def way_after(way: Way, refusal: Refusal) -> Way | None:
    """How to ask after a refusal; None where it is about something else than the way of asking."""
    if refusal.status not in _REFUSES:
        return None
    names = refusal.names
    for name in OPTIONAL:
        if name not in way.left_out and _sent(way, name) and _concerns(names, name):
            return Way(way.rung, way.left_out | _goes(name, names))
    # A refusal without a word, by a server that may not know what it was asked for.
    wordless = refusal.status in (400, 422) and not refusal.said and not refusal.body.lstrip().startswith("<")
    if wordless or (_TOOL if way.rung == "tool" else _FORMAT).search(names):
        return way.lower()
    return None


def _sent(way: Way, name: str) -> bool:
    return name != "max_tokens" or "max_completion_tokens" in way.left_out


def _concerns(names: str, name: str) -> bool:
    if name == "stream_options":
        return "stream_options" in names or "include_usage" in names
    if name.startswith("max"):
        return bool(re.search(r"\bmax(?:_completion)?_tokens\b", names)) or _overflows(names)
    return re.search(rf"\b{name}\b", names) is not None


def _overflows(names: str) -> bool:
    """Prompt and largest answer together are more than the context: without the limit the server makes do."""
    return "context" in names and "completion" in names


def _goes(name: str, names: str) -> frozenset[str]:
    if name == "max_completion_tokens" and any(word in names for word in _TOO_LARGE):
        return frozenset(("max_completion_tokens", "max_tokens"))  # the number is what it minds
    return frozenset((name,))
