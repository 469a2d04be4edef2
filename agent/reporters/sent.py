"""What a language model was really sent in an incident, and what it said: word for word, safe for a terminal."""

from __future__ import annotations

from typing import Any

from weaklink.agent.record.bodies import Answered, Asked, Exchanged, LookedAt
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.text import printable_lines
from weaklink.collector.evidence import Model
from weaklink.collector.table.text import printable

SCHEMA = "weaklink.sent/1"
NOTHING = "No language model was asked in this incident: weaklink sent nothing anywhere.\n"


def render_sent(incident: Incident) -> str:
    """Every message and reply in order, each line of them behind two spaces, so that none passes for a heading."""
    bodies = [body for _, _, body in incident.events]
    if not any(isinstance(body, Asked) and body.endpoint is not None for body in bodies):
        return NOTHING
    parts: list[str] = []
    for number, body in enumerate(bodies):
        parts += _parts(body)
        if isinstance(body, Asked) and body.endpoint is not None and not _replied(bodies[number + 1 :]):
            # What a request held is recorded with its reply; here there is only what the brief was.
            parts.append(_block("NO REPLY came; the brief was", body.brief))
    return "\n".join(parts) + "\n"


def _replied(after: list[Model]) -> bool:
    """Whether an exchange stands before the next asking."""
    for body in after:
        if isinstance(body, (Asked, Exchanged)):
            return isinstance(body, Exchanged)
    return False


def sent_json(incident: Incident) -> dict[str, Any]:
    """The exchanges and looks as they are recorded."""
    kept = [
        {"seq": seq, "kind": kind, "body": body.model_dump(mode="json")}
        for seq, kind, body in incident.events
        if isinstance(body, (Exchanged, LookedAt))
    ]
    return {"schema": SCHEMA, "events": kept}


def _parts(body: object) -> list[str]:
    if isinstance(body, Asked) and body.endpoint is not None:
        who = f"{printable(body.model or '')} at {printable(body.endpoint)}"
        if body.spoken is not None:
            return [f"A RECORDING of {who}, which spoke on {printable(body.spoken)}: nothing is sent"]
        return [f"ASKED {who}"]
    if isinstance(body, Exchanged):
        sent = [_block(f"SENT ({message.role})", message.content) for message in body.sent]
        return [*sent, _block(f"SAID ({_about(body)})", body.reply.text)]
    if isinstance(body, LookedAt):
        return [f"LOOKED {body.look.do}: {'shown' if body.look.ok else 'refused'}"]
    if isinstance(body, Answered) and body.text is not None:
        if not body.violations:
            return ["ACCEPTED by the contract"]
        return [_block("REFUSED by the contract", "\n".join(body.violations))]
    return []


def _about(body: Exchanged) -> str:
    usage = body.reply.usage
    tokens = [
        f"{count} tokens {kind}"
        for count, kind in ((usage.prompt_tokens, "read"), (usage.answer_tokens, "written"))
        if count is not None
    ]
    parts = [printable(body.reply.model), printable(body.reply.rung), f"{body.reply.seconds:.1f} s", *tokens]
    return ", ".join(parts)


def _block(head: str, text: str) -> str:
    shown = printable_lines(text, limit=max(1, len(text)))
    return "\n".join([head, *(f"  {line}" for line in shown.split("\n"))])
