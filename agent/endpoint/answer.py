"""The parts of a streamed answer put together, and what makes it no answer at all."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from weaklink.agent.conversation.messages import Usage
from weaklink.agent.endpoint.faults import Refusal, WireFault

LONGEST_ANSWER = 2**20  # characters
_LONGER = "say with --context that the model reads more tokens at once: what is left of them is the answer's room."


@dataclass
class Answer:
    """What has come so far of the first choice.

    Attributes:
        text: The content, and the arguments of the one call that was asked for.
        thought: Characters of reasoning, which is no part of the answer.
        finish: Why it ended; None while it has not.
        model: The model's name as the endpoint gives it.
    """

    finish: str | None = None
    model: str | None = None
    thought: int = 0
    characters: int = 0
    whole: bool = False
    usage: dict[str, Any] = field(default_factory=dict)
    _content: list[str] = field(default_factory=list)
    _arguments: list[str] = field(default_factory=list)
    _refusal: list[str] = field(default_factory=list)
    _chose: bool = False

    def take(self, chunk: dict[str, Any]) -> None:
        """One object of the stream, or the whole answer.

        Raises:
            Refusal: It is an error.
            WireFault: There is more than any answer needs.
        """
        error = chunk.get("error")
        if error:
            raise Refusal(status=_status(error), body=json.dumps(chunk, default=str))
        if isinstance(chunk.get("model"), str):
            self.model = chunk["model"]
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        if choice.get("index") not in (None, 0):
            return
        self._chose = True
        self.whole = self.whole or isinstance(choice.get("message"), dict)
        self._add(choice.get("delta") or choice.get("message"))
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]

    @property
    def text(self) -> str:
        """What was said, lone halves of a surrogate pair replaced: they could be written nowhere."""
        text = "".join(self._arguments) or "".join(self._content)
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def checked(self) -> str:
        """The text of an answer that came to its end, or to the largest number of tokens: `finish` says which.

        Raises:
            WireFault: It was cut, held back, refused by the model, or is empty.
        """
        refused = "".join(self._refusal)
        if refused:
            raise WireFault("The model refuses to answer.", "ask another model, or with --no-source.", said=refused)
        if not self._chose:
            raise WireFault(
                "The answer holds no choice.", "is it a Chat Completions endpoint, and is its model loaded?"
            )
        if self.finish == "length" and not self.text.strip():
            raise WireFault("The answer was cut at the largest number of tokens.", _LONGER)
        if self.finish == "content_filter":
            raise WireFault("The endpoint's filter held the answer back.", "ask another model, or with --no-source.")
        if self.finish is None and not self.whole:
            raise WireFault(
                "The stream was cut: it ended without a reason to finish.",
                "ask again; if it happens each time, look into the server's log and at proxies in between.",
            )
        if not self.text.strip():
            thought = f"; {self.thought} characters of reasoning came" if self.thought else ""
            raise WireFault(f"The answer is empty{thought}.", "ask again, or another model; " + _LONGER)
        return self.text

    def cost(self, price_input: float | None, price_output: float | None) -> Usage:
        """Tokens, and the cost that the endpoint names or that the prices (US dollars a million tokens) give."""
        prompt, answered = _count(self.usage.get("prompt_tokens")), _count(self.usage.get("completion_tokens"))
        told = self.usage.get("cost")
        cost: float | None = None
        if isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told) and told >= 0:
            cost = float(told)
        elif None not in (prompt, answered, price_input, price_output):
            cost = ((prompt or 0) * (price_input or 0.0) + (answered or 0) * (price_output or 0.0)) / 1e6
        return Usage(prompt_tokens=prompt, answer_tokens=answered, cost=cost)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _add(self, part: object) -> None:
        if not isinstance(part, dict):
            return
        for piece in _texts(part.get("content")):
            self._keep(self._content, piece)
        for name in ("reasoning_content", "reasoning"):
            self.thought += len(part[name]) if isinstance(part.get(name), str) else 0
        if isinstance(part.get("refusal"), str):
            self._keep(self._refusal, part["refusal"])
        calls = part.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            # One call was asked for; what a second one says was not.
            if isinstance(call, dict) and call.get("index") in (None, 0):
                self._call(call.get("function"))

    def _call(self, function: object) -> None:
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        if isinstance(arguments, str):
            self._keep(self._arguments, arguments)

    def _keep(self, where: list[str], text: str) -> None:
        self.characters += len(text)
        if self.characters > LONGEST_ANSWER:
            raise WireFault(
                f"The answer is longer than {LONGEST_ANSWER} characters and was dropped.", "ask another model."
            )
        where.append(text)


def _texts(content: object) -> list[str]:
    """A content is a text, or a list of parts with texts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _status(error: object) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdigit():
        code = int(code)
    return code if isinstance(code, int) and 400 <= code < 600 else 200
