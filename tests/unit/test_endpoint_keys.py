"""A key goes to its own endpoint and nowhere else: not to another host, not into a reply, an error or a file."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_server import ANSWER, FORM, KEY, QUESTION, delta, says, sends, serving, speaker

from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.endpoint.keys import REMOVED, Redaction
from weaklink.agent.endpoint.settings import Endpoint, resolve_endpoint
from weaklink.agent.endpoint.speaker import ChatCompletions
from weaklink.agent.progress import Progress
from weaklink.agent.settings import ModelSettings
from weaklink.collector.errors import UsageError

LOCAL = "http://127.0.0.1:8080/v1"
REMOTE = "https://models.example/v1"
USERS = {
    "OPENAI_API_KEY": "sk-proj-ofTheUser0123456789",
    "OPENAI_ADMIN_KEY": "sk-admin-ofTheUser0123456789",
    "OPENAI_ORG_ID": "org-ofTheUser0123456789",
    "OPENAI_PROJECT_ID": "proj_ofTheUser0123456789",
    "OPENAI_WEBHOOK_SECRET": "whsec_ofTheUser0123456789",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer custom-ofTheUser0123456789\nX-Team: team-ofTheUser0123456789",
}
NOTHING = ModelSettings()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAKLINK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def users_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What somebody has set who uses OpenAI: in the process too, where the SDK looks for it."""
    for name, value in USERS.items():
        monkeypatch.setenv(name, value)
    return dict(USERS)


def resolved(environment: dict[str, str], file: ModelSettings = NOTHING, **said: Any) -> Endpoint:
    return resolve_endpoint(SaidAdvisor(**({"model": "m"} | said)), environment, file)


# -- what leaves -----------------------------------------------------------------------------------------------------


def test_nothing_of_the_users_account_reaches_a_custom_endpoint(users_environment: dict[str, str]) -> None:
    with serving(says()) as served:
        speaker(served.base_url, environment=users_environment).reply(QUESTION, FORM)
    (headers,) = served.headers
    sent = str(headers) + str(served.bodies) + str(served.paths)
    assert "ofTheUser" not in sent
    assert set(headers) == {
        "host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent",
    }  # fmt: skip
    assert headers["user-agent"] == "weaklink", "the SDK's own tells platform and versions"


def test_a_custom_endpoint_gets_its_own_key(users_environment: dict[str, str]) -> None:
    with serving(says()) as served:
        speaker(served.base_url, environment=users_environment | {"WEAKLINK_API_KEY": KEY}).reply(QUESTION, FORM)
    assert served.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "ofTheUser" not in str(served.headers)


def test_openais_endpoint_gets_key_organization_and_project(users_environment: dict[str, str]) -> None:
    official = resolved(users_environment | {"WEAKLINK_API_KEY": KEY})
    assert (official.host, official.base_url) == ("api.openai.com", "https://api.openai.com/v1")
    with serving(says()) as served:
        here = dataclasses.replace(official, base_url=served.base_url, loopback=True)
        ChatCompletions(here, Progress()).reply(QUESTION, FORM)
    (headers,) = served.headers
    assert headers["authorization"] == f"Bearer {USERS['OPENAI_API_KEY']}"
    assert headers["openai-organization"] == USERS["OPENAI_ORG_ID"]
    assert headers["openai-project"] == USERS["OPENAI_PROJECT_ID"]
    others = str({name: value for name, value in headers.items() if name not in ("authorization",)})
    for hidden in ("sk-admin", "whsec", "custom-", "team-", KEY):
        assert hidden not in others


def test_the_environments_proxy_stands_between_hosts_but_not_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(says()) as proxy, serving(says()) as served:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        speaker(served.base_url).reply(QUESTION, FORM)
        assert proxy.paths == []
        speaker("http://models.example/v1").reply(QUESTION, FORM)
        assert proxy.paths == ["http://models.example/v1/chat/completions"]


def test_nothing_is_loaded_before_a_reply_is_asked_for() -> None:
    code = (
        "import sys, weaklink.agent.endpoint.speaker, weaklink.agent.endpoint.settings\n"
        "print(sorted({'openai', 'torch', 'httpx', 'httpx2'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


# -- which key -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [LOCAL, REMOTE, "http://api.openai.com/v1", "https://api.openai.com.example/v1",
                                 "https://api.openai.com:8443/v1"])  # fmt: skip
@pytest.mark.parametrize("through", ["option", "WEAKLINK_BASE_URL", "OPENAI_BASE_URL", "file"])
def test_openais_key_goes_to_no_other_address(url: str, through: str) -> None:
    environment = dict(USERS) | ({through: url} if through.endswith("URL") else {})
    said = {"base_url": url} if through == "option" else {}
    file = ModelSettings(base_url=url) if through == "file" else NOTHING
    held = resolved(environment, file, **said).credentials
    assert (held.key, held.organization, held.project) == (None, None, None)


def test_a_file_can_not_send_a_key_to_another_host() -> None:
    environment = dict(USERS) | {"WEAKLINK_API_KEY": KEY, "MINE": "key-of-mine-123"}
    file = ModelSettings(name="m", base_url=REMOTE)
    assert resolved(environment, file).credentials.key is None
    assert "--api-key-env" in f"{resolved(environment, file).credentials.why_none}"
    assert resolved(environment, file, api_key_env="MINE").credentials.key == "key-of-mine-123"
    # Said by the user, the same address gets the user's key; so does a server on the user's own machine.
    assert resolved(environment, file, base_url=REMOTE).credentials.key == KEY
    assert resolved(environment | {"WEAKLINK_BASE_URL": REMOTE}, file).credentials.key == KEY
    for url in (LOCAL, "http://localhost:1234/v1", "http://[::1]:1234/v1", "http://127.9.9.9/v1"):
        assert resolved(environment, ModelSettings(name="m", base_url=url)).credentials.key == KEY
    assert (
        resolved(environment, ModelSettings(name="m", base_url="http://127.0.0.1.example/v1")).credentials.key is None
    )


def test_another_variables_key_goes_without_organization() -> None:
    held = resolved(dict(USERS) | {"OTHER": "sk-other-0123456789"}, api_key_env="OTHER").credentials
    assert (held.key, held.organization, held.project) == ("sk-other-0123456789", None, None)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, {}),
        ({"WEAKLINK_API_KEY": KEY}, {}),
        ({"OPENAI_API_KEY": "  "}, {}),
        ({"OPENAI_API_KEY": "two words"}, {}),
        ({"OPENAI_API_KEY": "line\nX-Evil: 1"}, {}),
        ({"OPENAI_API_KEY": "schlüssel"}, {}),
        (USERS, {"api_key_env": "NOT_SET"}),
        (USERS, {"model": " "}),
    ],
)
def test_a_key_or_name_that_is_missing_or_none_is_refused_with_a_hint(
    environment: dict[str, str], said: dict[str, str]
) -> None:
    with pytest.raises(UsageError) as caught:
        resolved(environment, **said)
    assert caught.value.hint
    assert "words" not in str(caught.value)
    assert "Evil" not in str(caught.value)


# -- the address -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080/v1",
        "ftp://host/v1",
        "http://",
        "http:///v1",
        "http://host:99999/v1",
        "http://host:0/v1",
        "http://[::1/v1",
        "http://ho st/v1",
        "http://host/v1\x00",
        "https://user:hunter2@host/v1",
        "https://hunter2@host/v1",
        "https://host/v1?api_key=hunter2",
        "https://host/v1#hunter2",
    ],
)
def test_an_address_that_can_not_be_used_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolved({}, base_url=url)
    assert caught.value.about == "--base-url"
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None or "hunter2" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("url", "base_url", "host"),
    [
        ("http://127.0.0.1:8080/v1/", LOCAL, "127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/chat/completions", LOCAL, "127.0.0.1:8080"),
        (" https://models.example/v1 ", REMOTE, "models.example"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1", "[::1]:9"),
    ],
)
def test_an_address_as_people_write_it(url: str, base_url: str, host: str) -> None:
    endpoint = resolved({}, base_url=url)
    assert (endpoint.base_url, endpoint.host) == (base_url, host)


def test_who_says_it_first_wins() -> None:
    file = ModelSettings(name="of-file", base_url="http://127.0.0.1:3/v1", deadline=7.0, context=4096)
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:4/v1"}
    assert resolved(environment, file, model=None).host == "127.0.0.1:3"
    assert resolved(environment, model="m").host == "127.0.0.1:4"
    environment |= {"WEAKLINK_BASE_URL": "http://127.0.0.1:2/v1", "WEAKLINK_MODEL": "of-environment"}
    assert (resolved(environment, file, model=None).host) == "127.0.0.1:2"
    assert resolved(environment, file, model=None).model == "of-environment"
    endpoint = resolved(environment, file, base_url="http://127.0.0.1:1/v1")
    assert (endpoint.host, endpoint.model, endpoint.deadline, endpoint.context) == ("127.0.0.1:1", "m", 7.0, 4096)


@pytest.mark.parametrize(
    "file", [{"deadline": 0.0}, {"deadline": float("nan")}, {"deadline": -1.0}, {"price_input": -1.0},
             {"price_output": float("inf")}]
)  # fmt: skip
def test_a_number_that_is_none_is_refused(file: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be a number"):
        resolved({}, ModelSettings(**file), base_url=LOCAL)


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_a_key_is_in_no_representation() -> None:
    endpoint = resolved(dict(USERS) | {"WEAKLINK_API_KEY": KEY}, base_url=LOCAL)
    shown = repr(endpoint) + repr(ChatCompletions(endpoint, Progress())) + repr(Redaction(endpoint.secrets))
    assert KEY not in shown
    assert "ofTheUser" not in shown


def test_a_reply_that_echoes_a_key_is_kept_without_it(users_environment: dict[str, str], tmp_path: Path) -> None:
    environment = users_environment | {"WEAKLINK_API_KEY": KEY, "HF_TOKEN": "hf_abcdefghij0123456789"}
    echo = f'{{"a": "{KEY} {USERS["OPENAI_API_KEY"]} hf_abcdefghij0123456789"}}'
    cut = [echo[start : start + 9] for start in range(0, len(echo), 9)]
    chunks = [delta(piece) | {"model": f"small {KEY}"} for piece in cut]
    with serving(sends(*chunks, delta(finish="stop") | {"model": f"small {KEY}"}, "[DONE]")) as served:
        reply = speaker(served.base_url, environment=environment).reply(QUESTION, FORM)
    assert reply.text == f'{{"a": "{REMOVED} {REMOVED} {REMOVED}"}}'
    assert reply.model == f"small {REMOVED}"
    assert KEY not in reply.model_dump_json()
    (kept,) = (tmp_path / "cache").iterdir()
    assert KEY not in kept.read_text()


@given(st.text(), st.text())
def test_a_known_key_is_struck_out_wherever_it_stands(before: str, after: str) -> None:
    assert KEY not in Redaction([KEY]).clean(before + KEY + after)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefghijkl0123456789",
        "sk-abcdefgh0123456789",
        "Incorrect API key provided: sk-abcd****efgh.",
        "http://user:hunter2secret@host/",
        "GET /v1?api_key=hunter2secret&x=1",
    ],
)
def test_what_looks_like_a_key_is_struck_out(text: str) -> None:
    cleaned = Redaction().clean(text)
    assert REMOVED in cleaned
    assert not any(part in cleaned for part in ("abcd", "hunter2"))


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        "task-specific-head-2 and risk-adjusted-0 are parameters; the disk-backed set has 3 rows",
        "the bearer of the gradient is head.weight",
        "https://pytorch.org/docs?page=2",
        "e-mail me@example.org; x = a @ b",
    ],
)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert Redaction(("none", "ollama", "")).clean(text) == text
