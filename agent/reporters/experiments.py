"""The catalogue of experiments for a reader: what each changes, what it cannot, its parameters, what it decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weaklink.collector.catalogue import Entry
from weaklink.collector.evidence import BOUNDARIES
from weaklink.collector.table.layout import wrap
from weaklink.collector.table.text import PROSE_LIMIT, printable

EXPERIMENTS_SCHEMA = "weaklink.experiments/1"
_INDENT, _TERM = 2, 16
# How a bound of pydantic's JSON schema reads.
_BOUNDS = {
    "exclusiveMinimum": "above {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "below {}",
    "maximum": "at most {}",
    "maxLength": "at most {} characters",
}


def render_experiments(entries: Sequence[Entry], width: int = 100) -> str:
    """The entries by boundary, in the order of the chain; those of one boundary by name."""
    parts = []
    for boundary in BOUNDARIES:
        own = sorted((entry for entry in entries if entry.boundary == boundary), key=lambda entry: entry.name)
        if own:
            parts += [boundary, *(_entry(entry, width) for entry in own)]
    return "\n\n".join(parts) + "\n"


def experiments_json(entries: Sequence[Entry]) -> dict[str, Any]:
    """The one object `weaklink experiments --json` prints."""
    order = sorted(entries, key=lambda entry: (BOUNDARIES.index(entry.boundary), entry.name))
    return {"schema": EXPERIMENTS_SCHEMA, "experiments": [_as_json(entry) for entry in order]}


def parameters_of(entry: Entry) -> list[dict[str, Any]]:
    """Each parameter with its type, default and bounds, as `{"name", "type", "required", "default", "bounds"}`."""
    fields = entry.parameters.model_json_schema().get("properties", {})
    return [
        {
            "name": name,
            "type": _type(field),
            "required": entry.parameters.model_fields[name].is_required(),
            "default": field.get("default"),
            "bounds": _bounds(field),
        }
        for name, field in fields.items()
    ]


def _entry(entry: Entry, width: int) -> str:
    lines = [" " * _INDENT + entry.name]
    for term, text in (
        ("changes", entry.changes),
        ("cannot change", entry.cannot_change),
        ("not applicable", entry.not_applicable),
        *(("parameter", _parameter(each)) for each in parameters_of(entry)),
        ("decides", ", ".join(sorted(entry.decides)) or "nothing: a control"),
    ):
        lines += [" " * 2 * _INDENT + line for line in _beside(term, text, width - 2 * _INDENT)]
    return "\n".join(lines)


def _beside(term: str, text: str, width: int) -> list[str]:
    shown = wrap(printable(text, PROSE_LIMIT), max(width - _TERM, 20))
    return [f"{'' if number else term:{_TERM}}{line}" for number, line in enumerate(shown)]


def _parameter(parameter: dict[str, Any]) -> str:
    default = "required" if parameter["required"] else f"default {_plain(parameter['default'])}"
    return f"{parameter['name']}: {', '.join([parameter['type'], *parameter['bounds'], default])}"


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(str(value) for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(kind) for kind in field["anyOf"])
    return str(field.get("type", "any"))


def _bounds(field: dict[str, Any]) -> list[str]:
    kinds = [field, *field.get("anyOf", [])]
    found = [text.format(_plain(kind[key])) for kind in kinds for key, text in _BOUNDS.items() if key in kind]
    return [*(["not empty"] if field.get("minLength") else []), *found]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "none" if value is None else str(value).lower()


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "boundary": entry.boundary,
        "changes": entry.changes,
        "cannot_change": entry.cannot_change,
        "not_applicable": entry.not_applicable,
        "parameters": parameters_of(entry),
        "can_move": sorted(entry.can_move),
        "decides": sorted(entry.decides),
    }
