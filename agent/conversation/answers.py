"""How an answer is asked for, and how one is read out of whatever a model wrote around it.

Nothing is guessed: an object is taken as it stands, or it goes back with sentences that say what would be accepted.
"""

from __future__ import annotations

import re
from typing import Any

from weaklink.agent.contract.values import quoted
from weaklink.agent.conversation.finding import Found, objects
from weaklink.agent.conversation.forms import answer_form, turn_form
from weaklink.agent.conversation.looks import Look
from weaklink.agent.conversation.shapes import LOOKS, bounded, look_of, proposal_of
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence

__all__ = ["LARGEST", "answer_form", "read_answer", "read_turn", "turn_form"]

LARGEST = 2**20  # bytes
# How models wrap what they were asked for; the last as the call of a tool that was written as text.
_WRAPPERS = ("turn", "answer", "proposal", "arguments")
_MOST_WRAPPED = 4
_KEYS = ("do", "outcome", "first_boundary")
# The same in an object that is broken, whatever stands around its keys.
_SPEAKS = re.compile(r"\b(?:do|outcome|first_boundary|turn|answer|proposal|arguments)[\"'”’]?\s*:")
_FORM = "answer with one JSON object of the form that was asked for"


def read_answer(text: str, evidence: Evidence) -> Proposal | list[str]:
    """The answer in all that was said, or the sentences that go back.

    Args:
        text: As it was said: prose, fences and thinking may stand around it. Never raises, whatever it is.
        evidence: What it is about.
    """
    turn = read_turn(text, evidence)
    if isinstance(turn, (Proposal, list)):
        return turn
    return [f"It asks to see something ({turn.do}), and nothing can be shown here; {_FORM}."]


def read_turn(text: str, evidence: Evidence) -> Look | Proposal | list[str]:
    """The same where the reply may ask to see something instead. Of several objects the last one counts."""
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST:
        return ["It is larger than 1 MiB; an answer has a few thousand characters."]
    found = objects(text)
    said = [each for each in found if _speaks(text, each)]
    chosen = said[-1] if said else max(found, key=lambda each: each.end - each.start, default=None)
    if chosen is None:
        return [f"There is no JSON object in it; {_FORM}."]
    if chosen.value is None:
        return bounded([chosen.problem or "The object is no JSON."])
    inner = _unwrapped(chosen.value)
    return inner if isinstance(inner, list) else _turn(inner, evidence)


def _speaks(text: str, found: Found) -> bool:
    """Whether an object is meant as an answer or a request, broken or not."""
    if found.value is None:
        return _SPEAKS.search(text, found.start, found.end) is not None
    return any(key in found.value for key in (*_KEYS, *_WRAPPERS))


def _unwrapped(value: dict[str, Any]) -> dict[str, Any] | list[str]:
    for _ in range(_MOST_WRAPPED):
        wrapper = next((key for key in _WRAPPERS if key in value), None)
        if wrapper is None or any(key in value for key in _KEYS):
            break
        beside = [key for key in value if key not in (wrapper, "name")]
        if beside:
            return bounded([f"{quoted(beside[0], 60)} stands beside {wrapper}; {wrapper} stands there alone."])
        inner = value[wrapper]
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if not isinstance(inner, dict):
            return [f"{wrapper} holds no object; {_FORM}."]
        value = inner
    return value


def _turn(value: dict[str, Any], evidence: Evidence) -> Look | Proposal | list[str]:
    if "do" not in value:
        return proposal_of(value, evidence)
    do = value["do"]
    if isinstance(do, str) and do in LOOKS:
        return look_of(value, evidence)
    if do != "answer":
        shown = quoted(do, 60) if isinstance(do, str) else "no text"
        return [f"do is {shown}; it must be one of: {', '.join([*LOOKS, 'answer'])}."]
    rest = {key: item for key, item in value.items() if key != "do"}
    inner = _unwrapped(rest)
    return inner if isinstance(inner, list) else proposal_of(inner, evidence)
