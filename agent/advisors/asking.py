"""Advisors that are asked in words: a language model at an endpoint, a recording of one, a person with a chat window.

They do not advise by themselves: a conversation is held with the first two (`weaklink.agent.asked`), and the last one's
answer is handed in later (`weaklink answer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from weaklink.agent.conversation.limits import DEFAULT_CONTEXT, Limits
from weaklink.agent.conversation.messages import Speaker


@dataclass(frozen=True)
class Telling:
    """What may be told in words: the context in tokens, whether files are shown, and from which folder.

    `root` is the project's folder where it is not the working folder.
    """

    context: int = DEFAULT_CONTEXT
    source: bool = True
    root: Path | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Asking:
    """A speaker and what it may be told.

    `endpoint` is where it listens. Of a recording, `spoken` is when the model spoke, and `operator` what the operator
    answered to its question.
    """

    speaker: Speaker
    telling: Telling
    endpoint: str
    spoken: str | None = None
    operator: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The advisor's name in the record."""
        return self.speaker.name


@dataclass(frozen=True)
class Pasting:
    """Nobody answers now: the prompt is printed later, and an answer is read back by `weaklink answer`."""

    telling: Telling
    name: str = "paste"
