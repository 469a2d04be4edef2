"""Each server asked directly: the ladder finds what it can do, tokens are counted, no refusal shows the key."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from servers import CONTEXT, Built, Server, llama_server, status

from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.conversation.messages import Form, Message, Reply
from weaklink.agent.endpoint.ladder import RUNGS, Way
from weaklink.agent.endpoint.remembered import remember
from weaklink.agent.endpoint.settings import Endpoint, resolve_endpoint
from weaklink.agent.endpoint.speaker import ChatCompletions
from weaklink.agent.errors import AdvisorError
from weaklink.agent.progress import Progress
from weaklink.agent.settings import ModelSettings

BOUNDARIES = ["TASK", "OBJECTIVE", "OWNERSHIP"]
FORM = Form(
    "answer",
    {
        "type": "object",
        "properties": {
            "boundary": {"type": "string", "enum": BOUNDARIES},
            "certain": {"type": "boolean"},
        },
        "required": ["boundary", "certain"],
        "additionalProperties": False,
    },
)
QUESTION = [
    Message(role="system", content="Answer with one JSON object with the keys boundary and certain."),
    Message(role="user", content="The optimizer holds no parameter of the head. TASK, OBJECTIVE or OWNERSHIP?"),
]
# Something that even a small model ends where nothing holds it to a form.
ECHO = [
    Message(role="system", content="You repeat what you are told."),
    Message(role="user", content='{"boundary": "TASK", "certain": true}'),
]
ENFORCED = {
    "llama-server": {"json_schema strict", "json_schema", "json_object schema"},
    "python-server": {"tool", "json_object schema"},
}


@pytest.fixture(autouse=True)
def remembered_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is learned of an endpoint is kept in the test's own folder."""
    monkeypatch.setenv("WEAKLINK_CACHE_DIR", str(tmp_path / "cache"))


def endpoint_of(server: Server, key: str | None = None) -> Endpoint:
    said = SaidAdvisor(model=server.model, base_url=server.base_url, context=CONTEXT)
    held = key or server.key
    return resolve_endpoint(said, {"WEAKLINK_API_KEY": held} if held else {}, ModelSettings(deadline=120.0))


def speaker(server: Server, key: str | None = None) -> ChatCompletions:
    return ChatCompletions(endpoint_of(server, key), Progress())


def conforms(reply: Reply) -> bool:
    try:
        body = json.loads(reply.text)
    except json.JSONDecodeError:
        return False
    return (
        isinstance(body, dict)
        and set(body) == {"boundary", "certain"}
        and body["boundary"] in BOUNDARIES
        and isinstance(body["certain"], bool)
    )


def refusals(server: Server, status: int) -> int:
    """How many requests the server's log says it answered with a status."""
    assert server.log is not None, "a server of ours has a log"
    return server.log.read_text(encoding="utf-8", errors="replace").count(f'/v1/chat/completions HTTP/1.1" {status} ')


def test_a_reply_names_model_endpoint_and_rung(server: Server) -> None:
    reply = speaker(server).reply(QUESTION, FORM)
    assert reply.text
    assert reply.model == server.model
    assert reply.endpoint == server.base_url.split("//")[1].split("/")[0]
    assert reply.rung
    assert reply.seconds > 0


def test_a_schema_is_kept_to_by_the_server_that_can(llama: Server) -> None:
    reply = speaker(llama).reply(QUESTION, FORM)
    assert "schema" in reply.rung
    assert conforms(reply), reply.text
    assert reply.usage.prompt_tokens is not None
    assert 20 < reply.usage.prompt_tokens < 200
    assert reply.usage.answer_tokens is not None
    assert 5 < reply.usage.answer_tokens < 60


def test_the_ladder_steps_down_by_itself_and_remembers(python_bindings: Server) -> None:
    before = refusals(python_bindings, 500)
    first = speaker(python_bindings).reply(QUESTION, FORM)
    assert conforms(first), first.text
    refused = refusals(python_bindings, 500) - before
    assert refused >= 1, "this server refuses a JSON schema; was none asked for?"
    # Another speaker, as another command would have it: what was learned is read back from the disk.
    second = speaker(python_bindings).reply(QUESTION, FORM)
    assert second.rung == first.rung
    assert refusals(python_bindings, 500) - before == refused


@pytest.mark.parametrize("rung", RUNGS)
def test_each_rung_is_asked_that_way_or_stepped_down_from(server: Server, rung: str) -> None:
    remember(endpoint_of(server), Way(rung))
    reply = speaker(server).reply(ECHO, FORM)
    assert RUNGS.index(reply.rung) >= RUNGS.index(rung)
    if server.kind == "python-server" and rung.startswith("json_schema"):
        assert reply.rung == "tool"
    elif server.kind != "given":
        assert reply.rung == rung
    if reply.rung in ENFORCED.get(server.kind, ()):
        assert conforms(reply), reply.text


def test_replies_nobody_can_read_lead_to_another_rung(llama: Server) -> None:
    asked = speaker(llama)
    rungs = []
    for _ in range(6):
        rungs.append(asked.reply(ECHO, FORM).rung)
        asked.was_unreadable()
    assert rungs == [rung for rung in RUNGS[:3] for _ in range(2)]


def test_a_wrong_key_is_refused_and_shown_to_nobody(llama: Server) -> None:
    wrong = "key-that-is-wrong-0123456789"
    with pytest.raises(AdvisorError) as caught:
        speaker(llama, key=wrong).reply(QUESTION, FORM)
    error = caught.value
    told = f"{error.message} {error.about} {error.hint}"
    assert "401" in told or "key" in error.message
    assert wrong not in told
    assert error.exit_code == 3


def test_what_is_longer_than_the_context_is_refused_at_once(llama: Server) -> None:
    long = [*QUESTION, Message(role="user", content="word " * 9000)]
    start = time.monotonic()
    with pytest.raises(AdvisorError) as caught:
        speaker(llama).reply(long, FORM)
    assert time.monotonic() - start < 30
    assert "context" in f"{caught.value.message} {caught.value.hint}"


def test_a_server_that_is_still_loading_is_waited_for(where: Built, tmp_path: Path) -> None:
    # A large context takes it seconds to lay out; it listens before, and answers 503.
    with llama_server(where, tmp_path / "loading.log", context=32768, wait=False) as loading:
        until = time.monotonic() + 30
        while (answered := status(loading, "/v1/models")) is None and time.monotonic() < until:
            time.sleep(0.01)
        assert answered == 503, "it was ready before it could be asked"
        reply = speaker(loading).reply(QUESTION, FORM)
        assert conforms(reply), reply.text
