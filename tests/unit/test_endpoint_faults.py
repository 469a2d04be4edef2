"""Whatever a server does, the answer is an error with a hint, in time, and no key in it."""

from __future__ import annotations

import email.utils
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire_server import (
    ANSWER,
    FORM,
    KEY,
    QUESTION,
    Act,
    delta,
    gives,
    keeps_silent,
    says,
    sends,
    serving,
    speaker,
    taken,
    trickles,
)

from weaklink.agent.endpoint.faults import EndpointError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAKLINK_CACHE_DIR", str(tmp_path / "cache"))


def fault(*acts: Act, deadline: float = 5.0) -> EndpointError:
    """The error that a server's behaviour ends in."""
    with serving(*acts) as served:
        return fault_at(served.base_url, deadline)


def fault_at(base_url: str, deadline: float = 5.0) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        speaker(base_url, deadline).reply(QUESTION, FORM)
    error = caught.value
    assert error.exit_code == 3
    assert error.about is not None
    assert error.about.startswith("small at ")
    assert error.hint
    assert KEY not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__, "a chained cause can hold a key"
    return error


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_nobody_listens(free_port: int) -> None:
    error = fault_at(f"http://127.0.0.1:{free_port}/v1")
    assert "Nobody listens" in error.message
    assert error.about == f"small at 127.0.0.1:{free_port}"


def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "cannot be resolved" in fault_at("http://no-such-host.invalid/v1").message


def test_a_server_without_tls_asked_with_it() -> None:
    with serving(says()) as served:
        error = fault_at(served.base_url.replace("http:", "https:"))
    assert "No secure connection" in error.message
    assert "http://" in f"{error.hint}"


@pytest.mark.parametrize("proxy", ["socks9://127.0.0.1:1", "http://name:hunter2pass@127.0.0.1:1"])
def test_a_proxy_that_can_not_be_used(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    error = fault_at("http://models.example/v1")
    assert "hunter2pass" not in str(error)
    assert "proxy" in f"{error.hint}"


@pytest.mark.parametrize(
    ("status", "message", "word"),
    [
        (401, f"Incorrect API key provided: {KEY}. Sent as Bearer {KEY}", "WEAKLINK_API_KEY"),
        (403, "not for you", "may"),
        (404, "The model `small` does not exist", "/v1"),
        (402, "Payment required", "billing"),
        (400, "This model's maximum context length is 10 tokens", "--context"),
        (400, "messages: roles must alternate", "docs/model.md"),
        (413, "too large", "--context"),
    ],
)
def test_a_refusal_is_final_and_has_the_servers_words(status: int, message: str, word: str) -> None:
    with serving(gives(status, {"error": {"message": message}})) as served:
        error = fault_at(served.base_url)
        assert len(served.bodies) == 1, "asked again in vain"
    assert str(status) in error.message
    assert message.split(":")[0] in error.message
    assert word in f"{error.hint}"


def test_a_key_at_the_cut_of_a_long_message_is_not_shown_in_part() -> None:
    error = fault(gives(401, {"error": {"message": "x" * 290 + KEY}}))
    assert KEY[:8] not in str(error)
    assert "xxx" in error.message


def test_the_body_of_a_refusal_is_bounded_in_size_and_time() -> None:
    assert "x" * 400 not in fault(gives(403, "x" * 3_000_000)).message

    def endless(handler: Any, request: dict[str, Any]) -> None:
        handler.begin(status=500)
        while not handler.served.gone.wait(0.1):
            handler.wfile.write(b"x")

    start = time.monotonic()
    assert "is over" in fault(endless, deadline=1.0).message
    assert taken(start) < 2.5


def test_terminal_controls_in_a_servers_words_are_made_visible() -> None:
    assert "\x1b" not in fault(gives(403, {"error": {"message": "\x1b[31mred"}})).message


# -- what passes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_passes_is_asked_again(status: int) -> None:
    with serving(gives(status, {"error": {"message": "later"}}), says()) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).text == ANSWER
        assert len(served.bodies) == 2


def test_no_more_than_two_times() -> None:
    with serving(gives(500, {"error": {"message": "broken"}})) as served:
        assert "(status 500)" in fault_at(served.base_url).message
        assert len(served.bodies) == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_kept_to(form: str) -> None:
    date = email.utils.formatdate(time.time() + 2, usegmt=True)
    with serving(gives(429, None, Retry_After="1" if form == "seconds" else date), says()) as served:
        start = time.monotonic()
        assert speaker(served.base_url).reply(QUESTION, FORM).text == ANSWER
        assert 0.9 <= taken(start) < 4


def test_a_retry_after_beyond_the_deadline_is_told_at_once() -> None:
    start = time.monotonic()
    assert "3600 s" in fault(gives(429, {"error": {"message": "slow down"}}, Retry_After="3600")).message
    assert taken(start) < 2


def test_an_account_without_credit_is_not_asked_again() -> None:
    with serving(gives(429, {"error": {"message": "You exceeded", "code": "insufficient_quota"}})) as served:
        assert "credit" in fault_at(served.base_url).message
        assert len(served.bodies) == 1


def test_a_server_that_loads_its_model_is_waited_for() -> None:
    loading = gives(503, {"error": {"message": "Loading model", "type": "unavailable_error"}})
    with serving(loading, loading, loading, says()) as served:
        assert speaker(served.base_url).reply(QUESTION, FORM).text == ANSWER
    error = fault(loading, deadline=1.5)
    assert "not ready" in error.message
    assert "Loading model" in error.message


# -- answers that are none -------------------------------------------------------------------------------------------

WHOLE = {"id": "1", "object": "chat.completion", "model": "small-1"}


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (gives(200, "<html><body>Welcome</body></html>"), "web page"),
        (gives(200, "Ollama is running"), "neither a stream"),
        (gives(200, None), "not one byte"),
        (gives(200, {"error": {"message": "no such thing", "code": None}}), "no such thing"),
        (gives(200, {"error": "unexpected endpoint"}), "unexpected endpoint"),
        (gives(200, {**WHOLE, "choices": None}), "no choice"),
        (gives(200, {**WHOLE, "choices": [{"message": {"content": None}, "finish_reason": "stop"}]}), "empty"),
        (gives(200, [1, 2]), "neither a stream"),
        (gives(200, '{"choices": [{"mess'), "broken JSON"),
        (sends(delta("{"), '{"choices": [{"del'), "broken JSON"),
        (sends(delta("{"), "[1]"), "no JSON object"),
        (sends(b'data: {"choices": "\xff\xfe"}\n\n'), "UTF-8"),
        (sends(delta(""), delta(finish="stop"), "[DONE]"), "empty"),
        (sends(delta(reasoning_content="hmm"), delta(finish="stop"), "[DONE]"), "3 characters of reasoning"),
        (sends(delta(reasoning_content="hm"), delta(finish="length"), "[DONE]"), "largest number of tokens"),
        (sends(delta("I"), delta(finish="content_filter"), "[DONE]"), "filter"),
        (sends(delta(refusal="I can't help"), delta(finish="stop"), "[DONE]"), "I can't help"),
        (sends(delta('{"a": 1}')), "cut"),
        (sends(delta('{"a": 1}'), "[DONE]"), "cut"),
        (sends(delta("{"), {"error": {"message": "out of memory"}}), "out of memory"),
        (sends(b"data: " + b"x" * 5_000_000), "longer than"),
        (sends(*[delta("x" * 100_000)] * 12), "longer than"),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(act: Act, words: str) -> None:
    start = time.monotonic()
    assert words in fault(act).message
    assert taken(start) < 4


def test_an_answer_cut_before_its_first_word_says_how_to_get_more() -> None:
    assert "--context" in f"{fault(sends(delta(reasoning_content='hm'), delta(finish='length'))).hint}"


def test_words_that_were_cut_at_the_limit_are_kept_and_said_to_be_cut() -> None:
    with serving(sends(delta('{"a": 1'), delta(finish="length"), "[DONE]")) as served:
        reply = speaker(served.base_url).reply(QUESTION, FORM)
    assert (reply.text, reply.finish) == ('{"a": 1', "length")


def test_a_chunked_stream_that_breaks_off() -> None:
    def breaks(handler: Any, request: dict[str, Any]) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.begin(Transfer_Encoding="chunked")
        event = b'data: {"choices": [{"delta": {"content": "{"}}]}\n\n'
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        handler.close_connection = True

    assert "cut" in fault(breaks).message


def test_a_redirect_is_not_followed_and_carries_no_key() -> None:
    with serving(says()) as other:
        elsewhere = other.base_url + "/chat/completions?api_key=abcdefgh"
        with serving(gives(307, None, Location=elsewhere)) as served:
            error = fault_at(served.base_url)
        assert other.bodies == []
    assert "not followed" in error.message
    assert "abcdefgh" not in error.message


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act", [keeps_silent(), trickles(0.05), sends(delta("{"), 30.0), sends(b": keep-alive\n\n", 30.0), sends(30.0)]
)
def test_silence_and_trickling_end_at_the_deadline(act: Act) -> None:
    start = time.monotonic()
    error = fault(act, deadline=1.0)
    assert "is over" in error.message
    assert 0.9 < taken(start) < 2.2


def test_a_stream_that_stays_open_after_its_end_is_an_answer() -> None:
    with serving(sends(delta(ANSWER), delta(finish="stop"), 30.0)) as served:
        start = time.monotonic()
        assert speaker(served.base_url, deadline=20).reply(QUESTION, FORM).text == ANSWER
        assert taken(start) < 4


def test_a_connection_closed_at_once_is_asked_again_and_then_told() -> None:
    accepted = 0

    def slam(server: socket.socket) -> None:
        nonlocal accepted
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            accepted += 1
            connection.recv(100)
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=slam, args=(server,), daemon=True)
        thread.start()
        error = fault_at(f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    assert "closed before an answer" in error.message
    assert accepted == 3


def test_something_that_speaks_no_http() -> None:
    def banner(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            connection.recv(100)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=banner, args=(server,), daemon=True)
        thread.start()
        error = fault_at(f"http://127.0.0.1:{server.getsockname()[1]}/v1", deadline=1.0)
    thread.join(5)
    assert error.message


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()


def test_ctrl_c_passes_through_at_once(ctrl_c: None) -> None:
    with serving(keeps_silent()) as served:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            speaker(served.base_url, deadline=20).reply(QUESTION, FORM)
        assert taken(start) < 1.5
