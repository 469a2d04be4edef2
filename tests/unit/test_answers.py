"""Reading answers: found in whatever stands around them, taken as they are, or sent back with what is accepted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from evidence_samples import EMPTY, parameter, stale_head_evidence
from hypothesis import given, settings
from hypothesis import strategies as st

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations
from weaklink.agent.conversation.answers import LARGEST, answer_form, read_answer, read_turn, turn_form
from weaklink.agent.conversation.forms import MOST_ROWS
from weaklink.agent.conversation.looks import ListFiles, Look, ReadLines, RunInstrument, SearchFiles
from weaklink.agent.conversation.shapes import LONGEST_SENTENCE, MOST_SENTENCES
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.canonical import canonical_bytes
from weaklink.collector.evidence import Row

EVIDENCE = stale_head_evidence()
ACCEPTED = Playbook().advise(EVIDENCE, "", [])


def written(**changed: Any) -> dict[str, Any]:
    """An accepted answer as it stands on the wire, some keys changed."""
    body = ACCEPTED.model_dump(mode="json")
    parameters = body["experiment"]["parameters"]
    body["experiment"]["parameters"] = [{"name": name, "value": value} for name, value in parameters.items()]
    return body | changed


GOOD = json.dumps(written())
DRAFT = json.dumps(written(first_boundary="TASK"))


def refused(**changed: Any) -> list[str]:
    said = read_answer(json.dumps(written(**changed)), EVIDENCE)
    assert isinstance(said, list)
    return said


# --- Found ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"The set {{a, b}} matters, so:\n{GOOD}\nThat {{is}} it.",
        f"<think>{DRAFT}</think>\n{GOOD}",
        f'<think>It could be {{"outcome": "</think>{GOOD}',
        f"First I thought {DRAFT}, but then: {GOOD}",
        f"First {GOOD[:200]}, again: {GOOD}",
        f"{GOOD} My notes: {json.dumps({'seen': {'rows': 3}})}",
        f"[{GOOD}]",
        f'{{"answer": {GOOD}}}',
        f'{{"answer": [{GOOD}]}}',
        f'{{"proposal": {GOOD}}}',
        f'{{"turn": {{"do": "answer", "answer": {GOOD}}}}}',
        f'{{"do": "answer", "answer": {GOOD}}}',
        f'{{"do": "answer", {GOOD[1:]}',
        f'{{"name": "answer", "arguments": {GOOD}}}',
        f"\ufeff \x1b[31m{GOOD}\x00",
        ACCEPTED.model_dump_json(),
    ],
)
def test_an_answer_is_found_in_whatever_stands_around_it(text: str) -> None:
    assert read_answer(text, EVIDENCE) == ACCEPTED
    assert read_turn(text, EVIDENCE) == ACCEPTED


def test_the_end_of_thinking_within_an_answer_is_part_of_it() -> None:
    said = read_answer(json.dumps(written(dissent="</think> is a tag")), EVIDENCE)
    assert isinstance(said, Proposal)
    assert said.dissent == "</think> is a tag"


def test_the_last_of_several_counts_even_where_it_is_broken() -> None:
    said = read_answer(f"{GOOD}\nNo, rather:\n{DRAFT[:-1]},}}", EVIDENCE)
    assert isinstance(said, list)
    assert "comma" in said[0]


def test_an_answer_whose_outer_brace_is_missing_is_whole_all_the_same() -> None:
    assert read_turn(f'{{"turn": {{"do": "answer", "answer": {GOOD}', EVIDENCE) == ACCEPTED


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ('{"turn": {"do": "list", "path": "data"}}', ListFiles(path="data")),
        ('I look.\n```\n{"do": "search", "text": "zero_grad"}\n```', SearchFiles(text="zero_grad")),
        ('{"turn": {"do": "read", "file": "a.py", "first": null, "last": 80}}', ReadLines(file="a.py", last=80)),
        ('{"do": "read", "file": "a.py", "first": "7"}', ReadLines(file="a.py", first=7)),
        ('{"turn": {"do": "instrument", "name": "tiny_batch", "step": null}}', RunInstrument(name="tiny_batch")),
    ],
)
def test_requests_are_read(text: str, request_: Look) -> None:
    assert read_turn(text, EVIDENCE) == request_
    answered = read_answer(text, EVIDENCE)
    assert isinstance(answered, list)
    assert request_.do in answered[0]


def test_what_may_be_left_out_may_be_missing_or_null() -> None:
    least = {"outcome": "nothing_to_repair", "first_boundary": "NONE"}
    nulls = dict.fromkeys(Proposal.model_fields) | least
    assert read_answer(json.dumps(nulls), EVIDENCE) == read_answer(json.dumps(least), EVIDENCE)
    assert isinstance(read_answer(json.dumps(nulls), EVIDENCE), Proposal)


def test_values_are_left_as_they_were_said() -> None:
    cited = [{"row": "A/b", "field": "c", "value": value} for value in (0, True, None, "0.680", "x", ["a"])]
    said = read_answer(json.dumps(written(cited=cited)), EVIDENCE)
    assert isinstance(said, Proposal)
    assert [each.value for each in said.cited] == [0, True, None, "0.680", "x", ["a"]]
    nan = read_answer(json.dumps(written(cited=[{"row": "A/b", "field": "c", "value": float("nan")}])), EVIDENCE)
    assert isinstance(nan, Proposal)
    assert nan.cited[0].value != nan.cited[0].value


def test_a_line_break_within_a_text_is_kept() -> None:
    said = read_answer(GOOD.replace("built first; then", "built first;\nthen"), EVIDENCE)
    assert isinstance(said, Proposal)
    assert "built first;\nthen" in said.mechanisms[0].explanation


# --- Sent back --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "There is no JSON object"),
        ("I think it is the optimizer.", "There is no JSON object"),
        (f"<think>{GOOD}</think> It is the optimizer.", "There is no JSON object"),
        ("[]", "There is no JSON object"),
        (GOOD[:-1] + ",}", "comma stands before a closing bracket"),
        (GOOD.replace("}]", "},]", 1), "comma stands before a closing bracket"),
        (GOOD.replace("{", "{ // my answer\n", 1), "no comments"),
        (GOOD.replace("{", "{ /* mine */", 1), "no comments"),
        (GOOD.replace(",", ", # why\n", 1), "no comments"),
        (GOOD.replace('"', "“"), "curly quotes"),
        (GOOD.replace('"outcome"', "“outcome”"), "curly quotes"),
        (GOOD.replace('"', "'"), "single quotes"),
        (GOOD.replace("null", "None", 1), "write null, true or false"),
        (GOOD[:400], "ends before its last"),
        (GOOD[: GOOD.index("built first")], "ends before its last"),
        (GOOD.replace("{", '{"outcome": "inconclusive", ', 1), 'The key "outcome" stands twice'),
        ('{"outcome": ' * 20000, "nested deeper"),
        ('{"outcome": ' * 50 + "1" + "}" * 50, "nested deeper"),
        (GOOD + " " * LARGEST, "larger than 1 MiB"),
        ('{"do": "look"}', "list, search, read, instrument, answer"),
        ('{"do": ["read"]}', "list, search, read, instrument, answer"),
        ('{"do": "read"}', "file is missing; it must be a text"),
        ('{"do": "read", "file": "a", "last": "end"}', 'last is "end"; it must be a whole number or null'),
        ('{"do": "read", "file": "a", "lines": 3}', "lines is no key of the form; the keys there are: do, file"),
        ('{"turn": "read"}', "turn holds no object"),
        (f'{{"thoughts": "hm", "answer": {GOOD}}}', '"thoughts" stands beside answer'),
        ('{"diagnosis": "optimizer"}', "outcome is missing; it must be one of: experiment"),
    ],
)
def test_what_is_no_answer_goes_back_with_what_would_be(text: str, says: str) -> None:
    said = read_turn(text, EVIDENCE)
    assert isinstance(said, list)
    assert any(says in sentence for sentence in said), said


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"outcome": "maybe"}, 'outcome is "maybe"; it must be one of: experiment, ask_operator'),
        ({"first_boundary": None}, "first_boundary is null; it must be one of: TASK, OBJECTIVE"),
        ({"first_row": ["x"]}, "first_row is a list; it must be a row's name or null"),
        ({"cited": [{"row": "A/b", "field": "c"}]}, "cited[0].value is missing; it must be a text, a number"),
        ({"cited": [{"row": "A/b", "field": "c", "value": {}}]}, "cited[0].value is an object; it must be a text"),
        ({"cited": ["A/b"]}, 'cited[0] is "A/b"; it must be an object with the keys row, field, value'),
        ({"sources": [{"file": "a", "line": "1-3"}]}, 'sources[0].line is "1-3"; it must be a whole number'),
        ({"mechanisms": {}}, "mechanisms is an object; it must be a list of objects with the keys id, boundary"),
        ({"experiment": "seed"}, 'experiment is "seed"; it must be an object with the keys name, parameters'),
        ({"experiment": {"name": "seed", "parameters": 3}}, "experiment.parameters is 3; it must be a list"),
        ({"experiment": {"name": "seed", "parameters": [3]}}, "experiment.parameters[0] is 3"),
        ({"experiment": {"name": "seed", "parameters": {"é": 1}}}, "parameters have the names in the catalogue"),
        (
            {"experiment": {"name": "seed", "parameters": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]}},
            'experiment.parameters[1] names "a", which stands there already',
        ),
        ({"must_change": "loss.last"}, 'must_change is "loss.last"; it must be a list of measurements'),
        ({"repair": {"text": "x", "kind": "magic"}}, 'repair.kind is "magic"; it must be one of: wiring, data'),
        ({"confidence": 0.9}, "confidence is no key of the form; the keys there are: outcome, first_boundary"),
        ({"dissent": "\ud800"}, "dissent is"),
        ({"\udfff": 1}, "A key holds half of a surrogate pair"),
        ({"cited": [{"row": "A/b", "field": "c", "value": 2**53}]}, "cited[0].value is a whole number of 2**53"),
        ({"sources": [{"file": "a", "line": -(10**30)}]}, "sources[0].line is a whole number of 2**53"),
    ],
)
def test_a_sentence_names_the_place_and_what_is_accepted(changed: dict[str, Any], says: str) -> None:
    said = refused(**changed)
    assert any(says in sentence for sentence in said), said


def test_a_mechanism_that_does_not_exist_is_answered_with_those_that_do() -> None:
    wrong = {"id": "rate_too_low", "boundary": "UPDATE", "explanation": "x"}
    unplaced = {"id": "?", "boundary": "nowhere", "explanation": "x"}
    first, second = refused(mechanisms=[wrong, unplaced])
    assert first.startswith('mechanisms[0].id is "rate_too_low"')
    assert "rate_wrong" in first
    assert "regularization_wrong" in first
    assert "optimizer_holds_old_objects" in second, "where it stands nowhere, those of the first divergence"


def test_a_number_of_ten_thousand_digits_is_refused() -> None:
    text = GOOD.replace('"sources": []', f'"sources": [{{"file": "a", "line": {"9" * 10000}}}]')
    said = read_answer(text, EVIDENCE)
    assert isinstance(said, list)
    assert said == ["sources[0].line is a whole number of 2**53 or more; write it as a text."]


def test_sentences_are_few_short_and_quoted() -> None:
    hostile = "\x1b[31m</li><script>\u202e`|" * 60
    wrong = [{"id": hostile, "boundary": hostile, hostile: hostile, "predictions": [{hostile: 1}]}] * 40
    said = refused(mechanisms=wrong, **{hostile: 1})
    assert len(said) == MOST_SENTENCES
    assert said[-1].startswith("There are ")
    assert all(len(sentence) <= LONGEST_SENTENCE for sentence in said)
    assert not any(character in sentence for sentence in said for character in "\x1b<>\u202e`|\n")


@pytest.mark.parametrize(
    "text",
    [
        "{" * LARGEST,
        '{"a":' * 200_000,
        '{"a":1},' * 130_000,
        '{"a":"' * 170_000,
        '{"a":1}</think>' * 60_000,
        '{"a' + "\\" * 1_000_000,
        "{a}" * 340_000,
        '{"outcome":1,' + '"k":1,' * 140_000 + '"k":1}',
        json.dumps({"outcome": "experiment", "mechanisms": [5] * 300_000}),
    ],
    ids=lambda text: text[:12],
)
def test_no_text_takes_long(text: str) -> None:
    begun = time.process_time()
    assert isinstance(read_turn(text, EVIDENCE), list)
    assert time.process_time() - begun < 20  # a second or two here; the time of what is quadratic would be hours


# --- Whatever is said -------------------------------------------------------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("\ud800")
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid answer with some of its parts replaced by anything, some left out, some doubled, and its text cut."""
    body: Any = written()
    for _ in range(draw(st.integers(1, 4))):
        holder, key = draw(st.sampled_from(list(places(body))))
        if draw(st.booleans()):
            holder[key] = draw(_JSON)
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=8))] = holder.pop(key)
        else:
            holder.append(holder[key])
    text = json.dumps(draw(st.sampled_from([body, {"turn": body}, {"turn": {"do": "answer", "answer": body}}, [body]])))
    return text[draw(st.integers(0, 3)) : draw(st.none() | st.integers(0, len(text)))]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list within a value, with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


@settings(max_examples=300, deadline=None)
@given(
    st.text()
    | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
    | st.text(alphabet="{}[]\":,\\'“ndo0.e-/#*<>\n", max_size=60)
    | _JSON.map(json.dumps)
    | st.dictionaries(st.sampled_from(["do", "turn", "answer", "outcome", "file", "experiment"]), _JSON).map(json.dumps)
    | mutated()
)
def test_whatever_is_said_is_read_or_sent_back(text: str) -> None:
    read = read_turn(text, EVIDENCE)
    assert isinstance(read_answer(text, EMPTY), (Proposal, list))
    if isinstance(read, list):
        assert 0 < len(read) <= MOST_SENTENCES
        assert all(0 < len(sentence) <= LONGEST_SENTENCE for sentence in read)
        assert all(sentence.isprintable() for sentence in read)
        return
    canonical_bytes(read.model_dump())  # else the record could not keep it
    if isinstance(read, Proposal):
        violations(read, EVIDENCE)


# --- Asked for --------------------------------------------------------------------------------------------------------


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all within it."""
    yield schema
    for inner in (
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", []),
        *filter(None, [schema.get("items")]),
    ):
        yield from schemas(inner)


FORMS = [answer_form(EVIDENCE), turn_form(EVIDENCE, ("tiny_batch",)), answer_form(EMPTY), turn_form(EMPTY, ())]


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_what_strict_modes_accept(form: Any) -> None:
    known = {"type", "properties", "required", "additionalProperties", "items", "maxItems", "enum", "anyOf"}
    assert form.schema["type"] == "object"
    for schema in schemas(form.schema):
        assert set(schema) <= known
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        if "enum" in schema:
            assert schema["enum"]
    assert sum(len(schema.get("enum", ())) for schema in schemas(form.schema)) <= 900


def test_rows_of_this_evidence_can_be_named_and_no_others() -> None:
    first = answer_form(EVIDENCE).schema["properties"]["first_row"]["anyOf"][0]
    assert first["enum"] == [row.id for row in EVIDENCE.rows]
    shown = answer_form(EVIDENCE, ["OWNERSHIP/owned"]).schema["properties"]["first_row"]["anyOf"][0]
    assert shown["enum"] == ["OWNERSHIP/owned"]


def test_very_many_rows_are_not_listed() -> None:
    many = [Row(id=f"UPDATE/row_{index}", status="pass", text="") for index in range(MOST_ROWS + 1)]
    form = answer_form(EVIDENCE.model_copy(update={"rows": many}))
    assert form.schema["properties"]["first_row"]["anyOf"][0] == {"type": "string"}


def test_the_form_has_the_keys_of_a_proposal_and_explains_before_it_predicts() -> None:
    properties = answer_form(EVIDENCE).schema["properties"]
    assert set(properties) == set(Proposal.model_fields)
    mechanism = list(properties["mechanisms"]["items"]["properties"])
    assert mechanism.index("explanation") < mechanism.index("predictions")


def test_without_instruments_none_can_be_asked_for() -> None:
    turns = turn_form(EVIDENCE, ()).schema["properties"]["turn"]["anyOf"]
    assert [turn["properties"]["do"]["enum"] for turn in turns] == [["list"], ["search"], ["read"], ["answer"]]


# --- What the prompt shows --------------------------------------------------------------------------------------------


def test_the_example_in_the_prompt_is_read_and_meets_the_contract() -> None:
    text = (files("weaklink.prompts") / "example.md.j2").read_text(encoding="utf-8")
    said = read_answer(text, EVIDENCE)
    assert isinstance(said, Proposal)
    toy = stale_head_evidence()
    toy.rows = [Row(id="GRADIENT/cleared", status="fail", basis="exact", text="cleared unused")]
    toy.parameters = [parameter("toy.weight", [2]), parameter("rest.weight", [2], requires_grad=False)]
    shown = Shown()
    shown.add("toy.py", 7, ["    optimizer.zero_grad()"])
    assert violations(said, toy, shown) == []


def test_the_requests_in_the_prompt_are_read() -> None:
    from weaklink.agent.prompting.prompts import system_prompt

    lines = [line for line in system_prompt(12, ("tiny_batch",), 3).splitlines() if line.startswith('{"turn"')]
    assert [getattr(read_turn(line, EVIDENCE), "do", None) for line in lines] == [
        "list",
        "search",
        "read",
        "instrument",
    ]
