"""The shape an answer is to have, as a JSON schema that strict modes accept, with the names of this evidence in it.

Strict modes want every key required and nothing besides (`null` stands for what is left out), and know no patterns and
no lengths of texts; what they cannot say is left to the contract. They do know how many entries a list may have, and a
small model that is held to the schema would write entries until nothing more fits. The keys stand in the order in which
one should think: where it breaks, what shows it, what could cause it, and only then what to do. A model that is held to
the schema writes them in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from weaklink.agent.contract.families import NONE
from weaklink.agent.conversation.messages import Form
from weaklink.agent.proposal import Direction, MechanismFamily, Proposal, Repair
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import BOUNDARIES, Evidence

MOST_ROWS = 200  # named twice; beyond it any text: strict modes take a thousand names in all

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_NULL: Schema = {"type": "null"}


def answer_form(evidence: Evidence, shown_rows: Sequence[str] | None = None) -> Form:
    """The form of an answer about this evidence.

    Args:
        evidence: Its rows are the ones that can be named.
        shown_rows: Those of them that the model was shown; None: all.
    """
    return Form("answer", _answer(evidence, shown_rows))


def turn_form(evidence: Evidence, instruments: Sequence[str]) -> Form:
    """The form of a reply while something may still be looked at: one request, or the answer.

    Args:
        evidence: As in `answer_form`.
        instruments: Names of those that can be run; empty where none can.
    """
    requests = [
        _object(do=_one_of(["list"]), path=_TEXT),
        _object(do=_one_of(["search"]), text=_TEXT, path=_TEXT),
        _object(do=_one_of(["read"]), file=_TEXT, first=_WHOLE, last=_or_null(_WHOLE)),
    ]
    if instruments:
        name = _one_of(list(instruments))
        requests.append(_object(do=_one_of(["instrument"]), name=name, step=_or_null(_WHOLE)))
    answer = _object(do=_one_of(["answer"]), answer=_answer(evidence, None))
    return Form("turn", _object(turn={"anyOf": [*requests, answer]}))


def _answer(evidence: Evidence, shown_rows: Sequence[str] | None) -> Schema:
    rows = list(dict.fromkeys(shown_rows if shown_rows is not None else (row.id for row in evidence.rows)))
    row = _one_of(rows) if 0 < len(rows) <= MOST_ROWS else _TEXT
    value = {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}, _NULL, _list_of(_TEXT, 40)]}
    boundary = _one_of([*BOUNDARIES, NONE])
    prediction = _object(measurement=_TEXT, expect=_one_of(get_args(Direction)), value=value)
    mechanism = _object(
        id=_one_of(get_args(MechanismFamily)),
        boundary=boundary,
        explanation=_TEXT,
        predictions=_list_of(prediction, 10),
    )
    experiment = _object(name=_one_of(list(CATALOGUE)), parameters=_list_of(_object(name=_TEXT, value=value)))
    repair = _object(text=_TEXT, kind=_one_of(get_args(Repair.model_fields["kind"].annotation)))
    return _object(
        first_boundary=boundary,
        first_row=_or_null(row),
        dissent=_or_null(_TEXT),
        cited=_list_of(_object(row=row, field=_TEXT, value=value)),
        sources=_list_of(_object(file=_TEXT, line=_WHOLE, text=_TEXT)),
        outcome=_one_of(get_args(Proposal.model_fields["outcome"].annotation)),
        mechanisms=_list_of(mechanism, 3),
        experiment=_or_null(experiment),
        must_change=_list_of(_TEXT),
        must_stay_unchanged=_list_of(_TEXT),
        question=_or_null(_TEXT),
        repair=_or_null(repair),
    )


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(items: Schema, most: int = 6) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


def _one_of(names: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(names)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}
