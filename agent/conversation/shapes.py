"""A decoded object as a proposal or a look, or the sentences that say, each with its path, what would be accepted.

Shapes only: whether a row exists or an experiment fits is the contract's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from weaklink.agent.contract.families import ANY_BOUNDARY, BOUNDARY_OF, FAMILIES, NONE
from weaklink.agent.contract.values import quoted
from weaklink.agent.conversation.looks import ListFiles, Look, ReadLines, RunInstrument, SearchFiles
from weaklink.agent.proposal import (
    Citation,
    ExperimentChoice,
    Mechanism,
    Prediction,
    Proposal,
    Repair,
    SourceCitation,
)
from weaklink.collector.evidence import BOUNDARIES, Evidence

MOST_SENTENCES = 12
LONGEST_SENTENCE = 400
LOOKS: dict[str, type[Look]] = {
    "list": ListFiles,
    "search": SearchFiles,
    "read": ReadLines,
    "instrument": RunInstrument,
}

_DEEPEST = 16
_LARGEST_INTEGER = 2**53  # the record keeps no larger one: not every JSON reader has it exact
_LONGEST_SHOWN = 60
_NEAREST = 6
# Which model stands at which path, indices left out.
_INSIDE: dict[str, type[BaseModel]] = {
    "cited[]": Citation,
    "sources[]": SourceCitation,
    "mechanisms[]": Mechanism,
    "mechanisms[].predictions[]": Prediction,
    "experiment": ExperimentChoice,
    "repair": Repair,
}
_VALUE = "a text, a number, true, false, null, or a list of texts"
# What is not here, and no choice of words, is a text.
_WANTED: dict[str, str] = {
    "first_boundary": f"one of: {', '.join([*BOUNDARIES, NONE])}",
    "first_row": "a row's name or null",
    "dissent": "a text or null",
    "cited": "a list of objects with the keys row, field, value",
    "cited[].value": _VALUE,
    "sources": "a list of objects with the keys file, line, text",
    "sources[].line": "a whole number",
    "mechanisms": "a list of objects with the keys id, boundary, explanation, predictions",
    "mechanisms[].boundary": f"one of: {', '.join(BOUNDARIES)}",
    "mechanisms[].predictions": "a list of objects with the keys measurement, expect, value",
    "mechanisms[].predictions[].value": _VALUE,
    "experiment": "an object with the keys name, parameters, or null",
    "experiment.parameters": 'a list of objects such as {"name": "parameters", "value": "head.*"}',
    "must_change": "a list of measurements",
    "must_stay_unchanged": "a list of measurements",
    "question": "a text or null",
    "repair": "an object with the keys text, kind, or null",
    "first": "a whole number",
    "last": "a whole number or null",
    "step": "a whole number or null",
}
Shape = TypeVar("Shape", bound=BaseModel)


def proposal_of(value: dict[str, Any], evidence: Evidence) -> Proposal | list[str]:
    """The proposal, where the object has the form of one.

    Optional keys may be missing or null. An experiment's parameters stand as a list of names with values, or as an
    object.

    Args:
        value: As it was decoded.
        evidence: Its first divergence says which mechanisms may be meant where one has a name that does not exist.
    """
    unfit = list(_unfit(value)) or list(_bad_parameters(value.get("experiment")))
    if unfit:
        return bounded(unfit)
    given = _without_nulls(Proposal, "", value)
    choice = given.get("experiment")
    if isinstance(choice, dict) and isinstance(choice.get("parameters"), list):
        named = {item["name"]: item["value"] for item in choice["parameters"]}
        given["experiment"] = choice | {"parameters": named}
    return _validated(Proposal, given, {"": Proposal, **_INSIDE}, evidence)


def look_of(value: dict[str, Any], evidence: Evidence) -> Look | list[str]:
    """The look, where the object has the form of one; its `do` is one of `LOOKS`."""
    unfit = list(_unfit(value))
    if unfit:
        return bounded(unfit)
    kind = LOOKS[value["do"]]
    return _validated(kind, _without_nulls(kind, "", value), {"": kind}, evidence)


def bounded(sentences: list[str]) -> list[str]:
    """As many sentences as somebody reads, each cut where it is long."""
    kept = [text if len(text) <= LONGEST_SENTENCE else text[: LONGEST_SENTENCE - 3] + "..." for text in sentences]
    if len(kept) > MOST_SENTENCES:
        kept[MOST_SENTENCES - 1 :] = [f"There are {len(kept) - MOST_SENTENCES + 1} more of these."]
    return kept


# -- What no answer holds, and what the record could not keep ----------------------------------------------------------


def _unfit(value: dict[str, Any]) -> Iterator[str]:
    """Where it is nested too deep, a whole number is too large, or a text is none."""
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:  # no recursion: the depth is what is in question
        path, item, depth = waiting.pop()
        if depth > _DEEPEST:
            yield f"{path[:_LONGEST_SHOWN]}... is nested deeper than any answer; use the form that was asked for."
            return
        if isinstance(item, dict):
            waiting += [(_below(path, key), part, depth + 1) for key, part in reversed(item.items())]
            if any(_half(key) for key in item):
                yield f"A key{f' in {path}' if path else ''} holds half of a surrogate pair, which is no text."
        elif isinstance(item, list):
            waiting += [(f"{path}[{index}]", part, depth + 1) for index, part in reversed(list(enumerate(item)))]
        elif isinstance(item, str) and _half(item):
            yield f"{path} is {quoted(item, _LONGEST_SHOWN)}: half of a surrogate pair is no text; leave it out."
        elif isinstance(item, int) and abs(item) >= _LARGEST_INTEGER:
            yield f"{path} is a whole number of 2**53 or more; write it as a text."


def _half(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _bad_parameters(choice: object) -> Iterator[str]:
    parameters = choice.get("parameters") if isinstance(choice, dict) else None
    names: set[str] = set()
    if isinstance(parameters, dict):
        parameters = [{"name": name, "value": value} for name, value in parameters.items()]
    for index, item in enumerate(parameters if isinstance(parameters, list) else []):
        path = f"experiment.parameters[{index}]"
        if not isinstance(item, dict) or set(item) != {"name", "value"} or not isinstance(item["name"], str):
            yield f'{path} is {_shown(item)}; it must be an object such as {{"name": "parameters", "value": "head.*"}}.'
        elif item["name"] in names:
            yield f"{path} names {quoted(item['name'], _LONGEST_SHOWN)}, which stands there already; name it once."
        elif not item["name"].isascii():
            # Such a name is no key that the record can hold, and no parameter has one.
            yield f"{path} names {quoted(item['name'], _LONGEST_SHOWN)}; parameters have the names in the catalogue."
        else:
            names.add(item["name"])


# -- Shapes and sentences ----------------------------------------------------------------------------------------------


def _without_nulls(kind: type[BaseModel], general: str, value: dict[str, Any]) -> dict[str, Any]:
    """The object without the nulls that stand for what may be left out, in all objects inside too."""
    fields = kind.model_fields
    kept = {
        key: item for key, item in value.items() if item is not None or key not in fields or fields[key].is_required()
    }
    for key, item in kept.items():
        path = f"{general}.{key}" if general else key
        if isinstance(item, dict) and path in _INSIDE:
            kept[key] = _without_nulls(_INSIDE[path], path, item)
        elif isinstance(item, list) and f"{path}[]" in _INSIDE:
            inner, path = _INSIDE[f"{path}[]"], f"{path}[]"
            kept[key] = [_without_nulls(inner, path, part) if isinstance(part, dict) else part for part in item]
    return kept


def _validated(
    shape: type[Shape], value: dict[str, Any], models: Mapping[str, type[BaseModel]], evidence: Evidence
) -> Shape | list[str]:
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    # A value that is none of several types is reported once for each of them.
    told = (_told(value, problem["loc"], problem["type"], models, evidence) for problem in problems)
    return bounded(list(dict.fromkeys(told)))


def _told(
    value: dict[str, Any],
    location: tuple[int | str, ...],
    problem: str,
    models: Mapping[str, type[BaseModel]],
    evidence: Evidence,
) -> str:
    path, general, holder, item = _walked(value, location)
    if problem == "extra_forbidden":
        parent = models.get(general.rpartition(".")[0])
        known = ", ".join(parent.model_fields) if parent else "in the form that was asked for"
        return f"{path} is no key of the form; the keys there are: {known}."
    if problem == "missing":
        path = _below(path, str(location[-1]))
        general = f"{general}.{location[-1]}" if general else str(location[-1])
        return f"{path} is missing; it must be {_wanted(general, item, item, models, evidence)}."
    return f"{path} is {_shown(item)}; it must be {_wanted(general, holder, item, models, evidence)}."


def _walked(value: Any, location: tuple[int | str, ...]) -> tuple[str, str, Any, Any]:
    """A path in print, the same without indices, what holds the item, and the item.

    It ends where the value does: what follows in a location names a member of a union, or a key that is missing.
    """
    path, general, holder, item = "", "", None, value
    for step in location:
        if isinstance(item, list) and isinstance(step, int) and step < len(item):
            path, general = f"{path}[{step}]", f"{general}[]"
        elif isinstance(item, dict) and step in item:
            path, general = _below(path, str(step)), f"{general}.{step}" if general else str(step)
        else:
            break
        holder, item = item, item[step]
    return path, general, holder, item


def _wanted(
    general: str, holder: object, item: object, models: Mapping[str, type[BaseModel]], evidence: Evidence
) -> str:
    if general == "mechanisms[].id":
        return _families(holder, item, evidence)
    parent, _, name = general.rpartition(".")
    field = models[parent].model_fields.get(name) if parent in models else None
    choices = [each for each in get_args(field.annotation) if isinstance(each, str)] if field is not None else []
    if choices:
        return f"one of: {', '.join(choices)}"
    if general in models:
        return f"an object with the keys {', '.join(models[general].model_fields)}"
    return _WANTED.get(general, "a text")


def _families(mechanism: object, item: object, evidence: Evidence) -> str:
    """The nearest names, and those of the boundary at which it stands: nobody guesses one of forty."""
    boundary = mechanism.get("boundary") if isinstance(mechanism, dict) else None
    first = evidence.first_divergence
    if not (isinstance(boundary, str) and boundary in FAMILIES) and first is not None:
        boundary = first.boundary
    near = get_close_matches(item[:_LONGEST_SHOWN], BOUNDARY_OF, _NEAREST) if isinstance(item, str) else []
    known = FAMILIES.get(boundary, ()) if isinstance(boundary, str) else ()
    return f"a mechanism of the brief, such as: {', '.join(dict.fromkeys([*near, *known, *ANY_BOUNDARY]))}"


def _below(path: str, key: str) -> str:
    named = key if key.isascii() and key.isidentifier() and len(key) <= _LONGEST_SHOWN else quoted(key, _LONGEST_SHOWN)
    return f"{path}.{named}" if path else named


def _shown(item: object) -> str:
    if isinstance(item, dict):
        return "an object"
    if isinstance(item, list):
        return "a list"
    return quoted(item, _LONGEST_SHOWN) if item is None or isinstance(item, (bool, int, float, str)) else "no JSON"
