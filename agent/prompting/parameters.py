"""The parameters of an experiment as an advisor reads them: name, default, and what they accept."""

from __future__ import annotations

from typing import get_args

from pydantic.fields import FieldInfo

from weaklink.agent.contract.values import quoted
from weaklink.collector.catalogue import Entry

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", list[int]: "a list of whole numbers"}


def parameters_of(entry: Entry) -> list[str]:
    """Each as `site (required, as in train.py:48)`; choices are listed whole, for nobody can guess them."""
    return [f"{name} ({_described(field)})" for name, field in entry.parameters.model_fields.items()]


def _described(field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"default {quoted(field.get_default())}"
    accepts = _accepts(field)
    return f"{default}, {accepts}" if accepts else default


def _accepts(field: FieldInfo) -> str:
    if any("[1-9]" in (getattr(each, "pattern", None) or "") for each in field.metadata):
        return "as in train.py:48"
    choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    if choices:
        return "one of " + " ".join(choices) if len(choices) > 1 else ""
    return next((words for kind, words in _WORDS.items() if kind == field.annotation and field.is_required()), "")
