"""What of a long conversation still fits into the model's context."""

from __future__ import annotations

from collections.abc import Sequence

from weaklink.agent.conversation.messages import Message
from weaklink.agent.prompting.budget import answer_room, estimated_tokens

OPENING = 2  # the system message and the brief: without them nothing later makes sense


def fitting(messages: Sequence[Message], context: int) -> list[Message]:
    """The opening and as many of the last messages as fit, with a note where something was left out.

    Args:
        messages: All of them, in order.
        context: Tokens that the model reads at once, its answer included.
    """
    opening, rest = list(messages[:OPENING]), list(messages[OPENING:])
    room = context - answer_room(context) - sum(_size(message) for message in opening)
    kept: list[Message] = []
    for message in reversed(rest):
        room -= _size(message)
        if room < 0 and kept:
            break
        kept.insert(0, message)
    # A reply without the request before it, or the other way round, is no conversation.
    if len(kept) < len(rest) and kept and kept[0].role == "user" and len(kept) > 1:
        kept = kept[1:]
    left_out = len(rest) - len(kept)
    if left_out:
        opening[-1] = opening[-1].model_copy(
            update={"content": opening[-1].content + f"\n\n({left_out} earlier messages are left out here.)\n"}
        )
    return [*opening, *kept]


def _size(message: Message) -> int:
    return estimated_tokens(message.content) + 8  # the marks around a message
