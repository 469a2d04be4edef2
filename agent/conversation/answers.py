"""How an answer is asked for, and how one is read out of whatever a model wrote around it."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError

from weaklink.agent.contract import FAMILIES
from weaklink.agent.contract.values import quoted
from weaklink.agent.conversation.looks import ListFiles, Look, ReadLines, RunInstrument, SearchFiles
from weaklink.agent.conversation.messages import Form
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence

LARGEST = 2**20
MOST_SENTENCES = 12
_LOOKS = {"list": ListFiles, "search": SearchFiles, "read": ReadLines, "instrument": RunInstrument}


def answer_form(evidence: Evidence) -> Form:
    schema = {"type": "object", "additionalProperties": True}
    return Form("answer", schema)


def turn_form(evidence: Evidence, instruments: Any) -> Form:
    return Form("turn", {"type": "object", "additionalProperties": True})


def read_answer(text: str, evidence: Evidence) -> Proposal | list[str]:
    turn = read_turn(text, evidence)
    return turn if isinstance(turn, (Proposal, list)) else ["This asks to see something; an answer is needed."]


def read_turn(text: str, evidence: Evidence) -> Look | Proposal | list[str]:
    found = None
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text[:LARGEST]):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        found = value
        break
    if not isinstance(found, dict):
        return ["There is no JSON object in it."]
    for key in ("turn", "answer", "proposal"):
        if isinstance(found.get(key), dict):
            found = found[key]
    if found.get("do") in _LOOKS:
        try:
            return TypeAdapter(_LOOKS[found["do"]]).validate_python(found)
        except ValidationError as error:
            return [quoted(str(error), 300)]
    if found.get("do") == "answer":
        found = found.get("answer")
    choice = found.get("experiment") if isinstance(found, dict) else None
    if isinstance(choice, dict) and isinstance(choice.get("parameters"), list):
        choice["parameters"] = {each["name"]: each["value"] for each in choice["parameters"]}
    try:
        return Proposal.model_validate(found)
    except ValidationError as error:
        return [quoted(f"{each['loc']}: {each['msg']}", 300) for each in error.errors()[:MOST_SENTENCES]]
