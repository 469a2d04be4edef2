"""Each server is asked for what it can do: what it refuses by name is left out, and what worked is remembered."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from wire_server import ANSWER, FORM, KEY, QUESTION, Act, delta, gives, refuses, says, sends, serving, speaker

from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.conversation.messages import Form, Message, Usage
from weaklink.agent.endpoint.faults import EndpointError, Refusal
from weaklink.agent.endpoint.ladder import RUNGS, request_body, way_after
from weaklink.agent.endpoint.remembered import remembered_way
from weaklink.agent.endpoint.settings import resolve_endpoint
from weaklink.agent.endpoint.speaker import ChatCompletions
from weaklink.agent.progress import Progress
from weaklink.agent.settings import ModelSettings


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEAKLINK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "endpoints.json"


def kind(body: dict[str, Any]) -> str:
    """The rung that a request stands on."""
    if "tools" in body:
        return "tool"
    shape = body.get("response_format")
    if shape is None:
        return "plain"
    if shape["type"] == "json_schema":
        return "json_schema strict" if shape["json_schema"].get("strict") else "json_schema"
    return "json_object schema" if "schema" in shape else "json_object"


def takes_only(rung: str, status: int = 400) -> Act:
    """A server that knows one way alone, and names what it does not know."""
    named = {"tool": "tool_choice"}
    return refuses(lambda body: None if kind(body) == rung else named.get(kind(body), "response_format"), status)


# -- rungs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("rung", RUNGS)
def test_the_first_rung_that_the_server_takes(rung: str, status: int) -> None:
    with serving(takes_only(rung, status)) as served:
        reply = speaker(served.base_url).reply(QUESTION, FORM)
    assert (reply.text, reply.rung) == (ANSWER, rung)
    assert [kind(body) for body in served.bodies] == list(RUNGS[: RUNGS.index(rung) + 1])


def test_what_each_rung_asks_for() -> None:
    with serving(takes_only("plain")) as served:
        speaker(served.base_url).reply(QUESTION, FORM)
    strict, loose, tool, with_schema, json_object, plain = served.bodies
    assert strict["response_format"]["json_schema"] == {"name": "answer", "schema": FORM.schema, "strict": True}
    assert loose["response_format"]["json_schema"] == {"name": "answer", "schema": FORM.schema}
    assert tool["tools"][0]["function"]["parameters"] == FORM.schema
    assert tool["tool_choice"] == {"type": "function", "function": {"name": "answer"}}
    assert with_schema["response_format"] == {"type": "json_object", "schema": FORM.schema}
    assert json_object["response_format"] == {"type": "json_object"}
    assert "response_format" not in plain
    assert [{"role": each.role, "content": each.content} for each in QUESTION] == plain["messages"]


@pytest.mark.parametrize(
    "refusal",
    [
        # llama-cpp-python's server, with status 500
        (500, {"error": {"message": "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': "
                                    "\"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}]"}}),
        # FastAPI, which echoes the request: nothing of the echo names what is refused
        (422, {"detail": [{"loc": ["body", "response_format", "type"], "msg": "unexpected value",
                           "input": {"temperature": 0, "seed": 0, "stream_options": {}}}]}),
        (400, {"error": "json_schema is not supported by this model"}),
        (400, {"error": {"message": "This response_format type is unavailable now"}}),
        (400, {"error": {"message": "Failed to generate an answer.", "code": "json_validate_failed"}}),
        (400, [{"error": {"message": "Invalid JSON payload: response_format"}}]),
        (400, None),
    ],
)  # fmt: skip
def test_refusals_as_servers_write_them_lead_down_one_rung(refusal: tuple[int, object]) -> None:
    with serving(gives(*refusal), says()) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).rung == "json_schema"
    first, second = served.bodies
    assert set(first) == set(second), "something else was left out"


@pytest.mark.parametrize(
    "message", ["messages: roles must alternate", "the request exceeds the available context size", "no such model"]
)
def test_a_refusal_of_something_else_is_no_reason_to_step_down(message: str) -> None:
    with serving(gives(400, {"error": {"message": message}})) as served:
        with pytest.raises(EndpointError):
            speaker(served.base_url).reply(QUESTION, FORM)
        assert len(served.bodies) == 1


def test_the_ladder_has_an_end() -> None:
    with serving(gives(400, {"error": {"message": "response_format and tools: no"}})) as served:
        with pytest.raises(EndpointError, match="response_format"):
            speaker(served.base_url).reply(QUESTION, FORM)
        assert [kind(body) for body in served.bodies] == list(RUNGS)


# -- parameters ------------------------------------------------------------------------------------------------------


def test_all_is_asked_for_at_first() -> None:
    with serving(says()) as served:
        speaker(served.base_url).reply(QUESTION, FORM)
    (body,) = served.bodies
    assert (body["temperature"], body["seed"], body["stream"]) == (0, 0, True)
    assert body["stream_options"] == {"include_usage": True}
    assert 20_000 < body["max_tokens"] < 32_768, "what the messages leave of the context"
    assert "max_completion_tokens" not in body, "a server of one's own knows the older name, or drops the newer unread"


@pytest.mark.parametrize("name", ["temperature", "seed", "stream_options"])
def test_a_parameter_that_is_refused_by_name_is_left_out(name: str) -> None:
    with serving(refuses(lambda body: name if name in body else None)) as served:
        reply = speaker(served.base_url).reply(QUESTION, FORM)
    assert reply.rung == RUNGS[0]
    assert len(served.bodies) == 2
    assert set(served.bodies[0]) - set(served.bodies[1]) == {name}


def test_a_tool_whose_schema_leaves_no_room_is_passed_over() -> None:
    # Servers write a tool's schema into the prompt: beside a brief for 4,000 tokens it would overflow the context.
    wide = Form(FORM.name, {"type": "object", "properties": {f"key_{number}": {} for number in range(400)}})
    for form, rung in ((FORM, "tool"), (wide, "json_object schema")):
        refusing = refuses(lambda body: "response_format" if kind(body).startswith("json_schema") else None)
        with serving(refusing) as served:
            small = speaker(served.base_url, file={"context": 4096})
            assert small.reply(QUESTION, form).rung == rung


def test_openai_itself_knows_the_newer_name_and_a_refusal_leads_to_the_older() -> None:
    official = resolve_endpoint(SaidAdvisor(model="m"), {"OPENAI_API_KEY": "sk-0123456789abcdef"}, ModelSettings())
    first = remembered_way(official)
    assert request_body(first, "m", QUESTION, FORM, 7)["max_completion_tokens"] == 7
    then = way_after(first, Refusal(status=400, body='{"error": {"message": "unknown: max_completion_tokens"}}'))
    assert then is not None
    assert request_body(then, "m", QUESTION, FORM, 7)["max_tokens"] == 7


def test_a_limit_that_is_refused_by_either_name_is_left_out() -> None:
    with serving(refuses(lambda body: "max_tokens" if "max_tokens" in body else None)) as served:
        speaker(served.base_url).reply(QUESTION, FORM)
    assert not {"max_tokens", "max_completion_tokens"} & set(served.bodies[1])


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 20000. This model supports at most 16384 completion tokens",
        "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens (1000 in the messages, "
        "8000 in the completion). Please reduce the length of the messages or completion.",
    ],
)
def test_a_limit_that_is_too_large_is_left_to_the_server(message: str) -> None:
    with serving(gives(400, {"error": {"message": message}}), says()) as served:
        speaker(served.base_url).reply(QUESTION, FORM)
    assert not {"max_tokens", "max_completion_tokens"} & set(served.bodies[1])


def test_a_server_that_refuses_all_of_it_still_answers() -> None:
    def first_unknown(body: dict[str, Any]) -> str | None:
        known = {"model", "messages", "stream"}
        return next((name for name in sorted(body) if name not in known), None)

    with serving(refuses(first_unknown, 422)) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).rung == "plain"


# -- what was learned ------------------------------------------------------------------------------------------------


def test_the_next_command_asks_the_way_that_worked(cache: Path) -> None:
    def needs(body: dict[str, Any]) -> str | None:
        return "temperature" if "temperature" in body else None if kind(body) == "tool" else "response_format"

    with serving(refuses(needs)) as served:
        first = speaker(served.base_url).reply(QUESTION, FORM)
        asked = len(served.bodies)
        second = speaker(served.base_url).reply(QUESTION, FORM)
        assert (first.rung, second.rung) == ("tool", "tool")
        assert len(served.bodies) == asked + 1
    assert KEY not in cache.read_text()
    assert json.loads(cache.read_text())["schema"] == "weaklink.endpoints/1"
    assert [path.name for path in cache.parent.iterdir()] == ["endpoints.json"]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"schema": "weaklink.endpoints/1", "endpoints": 3}', "old", "\0", "odd"]
)
def test_a_memory_that_can_not_be_used_costs_nothing_but_requests(cache: Path, damage: str) -> None:
    with serving(takes_only("json_schema")) as served:
        speaker(served.base_url).reply(QUESTION, FORM)
        if damage in ("old", "odd"):
            kept = json.loads(cache.read_text())
            for entry in kept["endpoints"].values():
                entry.update({"since": int(time.time()) - 31 * 86400} if damage == "old" else {"rung": "telepathy"})
            damage = json.dumps(kept)
        cache.write_text(damage)
        assert speaker(served.base_url).reply(QUESTION, FORM).rung == "json_schema"
        assert len(served.bodies) == 4, "the memory was believed"
    assert "json_schema" in cache.read_text()


def test_a_memory_that_can_not_be_kept_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEAKLINK_CACHE_DIR", str(tmp_path / "file" / "below"))
    with serving(says()) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).text == ANSWER


def test_the_memory_lies_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEAKLINK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    with serving(says()) as served:
        speaker(served.base_url).reply(QUESTION, FORM)
    assert (tmp_path / "xdg" / "weaklink" / "endpoints.json").is_file()
    if os.name == "posix":
        assert (tmp_path / "xdg" / "weaklink" / "endpoints.json").stat().st_mode & 0o077 == 0


# -- replies that nobody can read ------------------------------------------------------------------------------------


def rungs_of(asked: ChatCompletions, unreadable: list[bool]) -> list[str]:
    rungs = []
    for each in unreadable:
        rungs.append(asked.reply(QUESTION, FORM).rung)
        if each:
            asked.was_unreadable()
    return rungs


def test_two_unreadable_replies_in_a_row_lead_down() -> None:
    with serving(says("no JSON")) as served:
        rungs = rungs_of(speaker(served.base_url), [True, False, True, True, True, True, False])
    assert rungs == [RUNGS[0]] * 4 + [RUNGS[1]] * 2 + [RUNGS[2]]


def test_nonsense_of_a_weak_model_is_not_remembered_as_the_endpoints() -> None:
    with serving(says("no JSON")) as served:
        rungs_of(speaker(served.base_url), [True] * 5)
        assert speaker(served.base_url).reply(QUESTION, FORM).rung == RUNGS[0]


def test_on_the_last_rung_nothing_is_left_to_try() -> None:
    with serving(says("no JSON")) as served:
        rungs = rungs_of(speaker(served.base_url), [True] * 14)
    assert rungs[-4:] == ["plain"] * 4


# -- what a reply says -----------------------------------------------------------------------------------------------


def test_a_reply_says_who_spoke_where_how_and_for_how_much() -> None:
    with serving(says(cost=0.25)) as served:
        reply = speaker(served.base_url, file={"price_input": 1.0, "price_output": 2.0}).reply(QUESTION, FORM)
    assert (reply.model, reply.finish) == ("small-1", "stop")
    assert reply.endpoint == served.base_url.removeprefix("http://").removesuffix("/v1")
    assert reply.usage == Usage(prompt_tokens=100, answer_tokens=10, cost=0.25)
    assert 0 < reply.seconds < 5


def test_without_a_cost_the_prices_count_and_without_both_prices_nobody_knows() -> None:
    with serving(says()) as served:
        priced = speaker(served.base_url, file={"price_input": 1.0, "price_output": 2.0}).reply(QUESTION, FORM)
        half = speaker(served.base_url, file={"price_input": 1.0}).reply(QUESTION, FORM)
    assert priced.usage.cost == pytest.approx((100 * 1.0 + 10 * 2.0) / 1e6)
    assert half.usage.cost is None


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "many", "completion_tokens": -3, "cost": "free"}])
def test_tokens_that_nobody_counted(usage: object) -> None:
    with serving(sends(delta(ANSWER), {**delta(finish="stop"), "usage": usage}, "[DONE]")) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).usage == Usage()


def whole(message: dict[str, Any], finish: str | None = "stop") -> Act:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return gives(200, {"model": "small-1", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})


CALL = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": ANSWER}}
PARTS = [{"type": "text", "text": ANSWER[:5]}, {"type": "image"}, {"type": "text", "text": ANSWER[5:]}]


@pytest.mark.parametrize(
    "act",
    [
        whole({"content": ANSWER}),
        whole({"content": ANSWER}, finish=None),
        whole({"content": None, "tool_calls": [CALL]}, finish="tool_calls"),
        whole({"content": PARTS}),
        whole({"content": "", "tool_calls": [{"function": {"name": "answer", "arguments": json.loads(ANSWER)}}]}),
        sends(b"\xef\xbb\xbf", delta(ANSWER), delta(finish="stop")),
        sends(b": OPENROUTER PROCESSING\n\n", delta(ANSWER), delta(finish="stop"), "[DONE]"),
        sends({"type": "ping"}, delta(ANSWER), delta(finish="stop"), "[DONE]"),
        sends(json.dumps(delta(ANSWER, finish="stop")).encode().join([b"data:", b"\r\n\r\n"])),
        sends(delta(reasoning="hmm, " * 9), delta(reasoning="so"), delta(ANSWER, finish="stop"), "[DONE]"),
    ],
)
def test_answers_in_the_forms_that_servers_give_them(act: Act) -> None:
    with serving(act) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).text == ANSWER


def test_characters_cut_between_chunks_are_whole_again() -> None:
    raw = json.dumps(delta("müßig ok"), ensure_ascii=False).encode()
    middle = raw.index(b"\xc3") + 1
    pieces = [b"data: " + raw[:middle], raw[middle:] + b"\n\n"]
    halves = [json.dumps(delta(half)) for half in ("\ud83d", "\ude00\ud800")]
    with serving(sends(*pieces, *halves, delta(finish="stop"))) as served:
        reply = speaker(served.base_url).reply(QUESTION, FORM)
    assert reply.text == "müßig ok\U0001f600�"
    assert reply.model_dump_json()


def test_a_message_that_no_server_takes_is_sent_escaped() -> None:
    with serving(says()) as served:
        speaker(served.base_url).reply([Message(role="user", content="lone \ud800")], FORM)
    assert served.bodies[0]["messages"][0]["content"] == "lone \\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_whoever_waits_sees_what_is_asked_and_how_much_has_come() -> None:
    terminal = Terminal()
    act = sends(delta(reasoning_content="hm"), delta("x" * 40), 2.6, delta(finish="stop"), "[DONE]")
    with serving(act) as served:
        asked = speaker(served.base_url)
        ChatCompletions(asked.endpoint, Progress(terminal)).reply(QUESTION, FORM)
        host = asked.endpoint.host
    assert f"asking small at {host}: 2 s  | 40 characters, 2 of reasoning" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[K"), "the line was left standing"
