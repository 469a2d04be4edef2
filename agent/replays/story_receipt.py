"""The receipt of a story (`story.py`): what each step of it found, reduced to what a later telling must find again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from weaklink.agent.replays.receipt import Receipt
from weaklink.collector.evidence import Model


class Attempt(Model):
    """What became of one attempt: held against the baseline on several random starts, and against the reference.

    `runs` are the attempt's, by seed: the incident's row, the rows before it that newly fail, and the first divergence.
    """

    recovery: str
    reasons: list[str]
    runs: dict[str, dict[str, Any]]
    against_the_reference: dict[str, Any]


class StoryReceipt(Model):
    """Every step of the story, in its order, keyed by name.

    `first_prediction` are the digests of what was frozen before anything was rerun; `events` are the kinds of all
    events of the incident, in the chain's order.
    """

    schema_: Literal["weaklink.story-receipt/1"] = Field(default="weaklink.story-receipt/1", alias="schema")
    first: Receipt
    first_prediction: dict[str, str]
    facts: list[str]
    declared: dict[str, Any]
    went_on: str | None
    reference: dict[str, Any]
    attempts: dict[str, Attempt]
    diagnosed: dict[str, Receipt]
    events: list[str]
    check: str
