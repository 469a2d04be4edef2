"""What goes to a language model and what comes back, whoever carries it: an endpoint, a recording."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from weaklink.collector.evidence import Float, Model


class Message(Model):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(Model):
    """Tokens of one exchange, and its cost in US dollars; None: the endpoint did not say, or no price is known."""

    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    cost: Float | None = None


class Reply(Model):
    """What the model said, word for word.

    `model` is the name that the endpoint gave, `endpoint` its host and port without path or credentials, `rung` the way
    that structured output was asked for, `finish` why it ended (`stop`, `length`, ...), `seconds` from the request to
    the last byte.
    """

    text: str
    model: str
    endpoint: str
    rung: str
    finish: str
    usage: Usage = Usage()
    seconds: Float = 0.0


@dataclass(frozen=True)
class Form:
    """The shape that a reply is to have: a JSON schema that strict modes accept, and a name for it."""

    name: str
    schema: dict[str, Any]


class Speaker(Protocol):
    """Whoever replies: an endpoint, or a recording of one.

    Attributes:
        name: The advisor's name in the record (`openai`, `recorded`).
        model: The model that is asked.
    """

    name: str
    model: str

    def reply(self, messages: Sequence[Message], form: Form) -> Reply:
        """The next reply.

        Raises:
            AdvisorError: None came; says why, without any key.
        """
        ...

    def was_unreadable(self) -> None:
        """The last reply did not have the form that was asked for: another way of asking may be due."""
        ...


def sent_digest(messages: Sequence[Message]) -> str:
    """SHA-256 over messages, their roles and their order."""
    whole = hashlib.sha256()
    for message in messages:
        content = message.content.encode("utf-8", "backslashreplace")
        whole.update(f"{message.role} {len(content)}\n".encode() + content)
    return whole.hexdigest()
