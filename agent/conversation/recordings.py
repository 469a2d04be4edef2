"""A conversation kept as a file, to be held again offline: the same replies, in the same order, labelled with whose.

What the model was sent is kept as digests: they tell whether the conversation is still the one it had. Where it is not
(another machine measures other digits, a prompt was reworded), the replies are what they were, and the contract judges
them as it judges any answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from weaklink.agent.conversation.messages import Form, Message, Reply, sent_digest
from weaklink.agent.errors import AdvisorError
from weaklink.agent.progress import Progress
from weaklink.agent.record.bodies import OperatorFact
from weaklink.agent.record.incident import Incident
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Model

RECORDING_SCHEMA = "weaklink.recording/1"
LARGEST = 64 * 2**20  # bytes; a conversation has some hundred KiB


class RecordedReply(Model):
    """One reply, and the SHA-256 of all that had been sent before it."""

    sent_sha256: str
    reply: Reply


class RecordedConversation(Model):
    """What a model said, and what the operator answered to its question.

    `spoken` is when the incident was opened in which the model spoke, `subject` the command that was diagnosed.
    """

    schema_: Literal["weaklink.recording/1"] = Field(default="weaklink.recording/1", alias="schema")
    model: str
    endpoint: str
    spoken: str
    weaklink: str
    subject: str
    replies: list[RecordedReply]
    operator: list[str] = []


class RecordingError(AdvisorError):
    """A recording is missing, damaged, or ends before the conversation does."""


def recording_of(incident: Incident) -> RecordedConversation:
    """The conversation of an incident's last round.

    Raises:
        UsageError: No model spoke in it.
    """
    about = str(incident.folder)
    if not incident.exchanged:
        raise UsageError(
            "No language model spoke in this incident, so there is no conversation to keep.",
            about=about,
            hint="ask one: `weaklink diagnose train.py --model NAME`.",
        )
    replies = [RecordedReply(sent_sha256=each.sent_sha256, reply=each.reply) for each in incident.exchanged]
    asked = incident.asked[-1] if incident.asked else None
    created = incident.continued.created if incident.continued else incident.opened.created
    return RecordedConversation(
        model=replies[-1].reply.model,
        endpoint=replies[-1].reply.endpoint,
        # A replayed conversation keeps the day on which the model spoke.
        spoken=(asked.spoken if asked is not None else None) or created,
        weaklink=(incident.continued or incident.opened).weaklink,
        subject=incident.opened.subject.command,
        replies=replies,
        operator=_answered_by_operator(incident),
    )


def _answered_by_operator(incident: Incident) -> list[str]:
    """What the operator said while the model was speaking."""
    answers: list[str] = []
    speaking = False
    for _, kind, body in incident.events:
        if kind == "incident.continued":
            answers, speaking = [], False
        speaking = speaking or kind == "advisor.exchanged"
        if speaking and isinstance(body, OperatorFact):
            answers.append(body.text)
    return answers


def recording_text(recording: RecordedConversation) -> str:
    """The file's text."""
    return recording.model_dump_json(by_alias=True, indent=1) + "\n"


def read_recording(path: Path) -> RecordedConversation:
    """Read a recording.

    Raises:
        RecordingError: It is missing or damaged; says which command makes one.
    """
    about = str(path)
    try:
        if path.stat().st_size > LARGEST:
            raise RecordingError("The recording is larger than any conversation.", about=about, hint=_HINT)
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecordingError("There is no such recording.", about=about, hint=_HINT) from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise RecordingError(f"The recording cannot be read: {error}.", about=about, hint=_HINT) from error
    try:
        recording = RecordedConversation.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole file"
        problem = f"This is no recording of schema {RECORDING_SCHEMA}: {place}: {first['msg']}."
        raise RecordingError(problem, about=about, hint=_HINT) from error
    if not recording.replies:
        raise RecordingError("The recording holds no reply.", about=about, hint=_HINT)
    return recording


_HINT = (
    "make one: `weaklink diagnose train.py --model NAME`, then "
    "`weaklink export INCIDENT --format recording --out FILE`."
)


class Recorded:
    """A Speaker that says again what a model once said.

    Args:
        recording: The conversation.
        path: Where it lies, for messages.
        progress: Where to tell that the conversation is no longer the one that was recorded.
    """

    name = "recorded"

    def __init__(self, recording: RecordedConversation, path: Path, progress: Progress) -> None:
        self.recording, self.model = recording, recording.model
        self._path, self._progress = path, progress
        self._next = 0
        self._told = False

    def reply(self, messages: Sequence[Message], form: Form) -> Reply:
        """The next recorded reply.

        Raises:
            RecordingError: The recording ends here.
        """
        if self._next >= len(self.recording.replies):
            raise RecordingError(
                f"The recording ends after {self._next} replies, and another one is needed: the conversation is not "
                "the one that was recorded.",
                about=str(self._path),
                hint=_HINT,
            )
        recorded = self.recording.replies[self._next]
        self._next += 1
        if not self._told and sent_digest(messages) != recorded.sent_sha256:
            self._told = True
            self._progress.say(f"what is sent differs from the recording from reply {self._next} on")
        return recorded.reply

    def was_unreadable(self) -> None:
        """A recording has only one way to answer."""
