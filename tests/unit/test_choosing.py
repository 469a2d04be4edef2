"""Who is asked: nothing leaves the machine unless somebody asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from weaklink.agent.advisors.asking import Asking, Pasting
from weaklink.agent.advisors.choosing import choose, telling
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.conversation.limits import DEFAULT_CONTEXT
from weaklink.agent.progress import Progress
from weaklink.agent.settings import ModelSettings
from weaklink.collector.errors import UsageError

LOCAL = "http://127.0.0.1:9/v1"
NOTHING: dict[str, str] = {}


def chosen(said: SaidAdvisor, file: ModelSettings | None = None, environment: dict[str, str] = NOTHING) -> object:
    return choose(said, file or ModelSettings(), environment, Progress())


def test_the_playbook_unless_somebody_else_is_asked() -> None:
    assert isinstance(chosen(SaidAdvisor()), Playbook)


@pytest.mark.parametrize(
    "environment",
    [{"WEAKLINK_MODEL": "m"}, {"OPENAI_API_KEY": "sk-x"}, {"WEAKLINK_BASE_URL": LOCAL}, {"WEAKLINK_API_KEY": "k"}],
)
def test_neither_a_key_nor_a_name_alone_asks_a_model(environment: dict[str, str]) -> None:
    assert isinstance(chosen(SaidAdvisor(), ModelSettings(name="m", base_url=LOCAL), environment), Playbook)


def test_a_model_on_the_command_line_asks_it() -> None:
    asking = chosen(SaidAdvisor(model="m", base_url=LOCAL))
    assert isinstance(asking, Asking)
    assert (asking.name, asking.speaker.model, asking.endpoint) == ("openai", "m", "127.0.0.1:9")


def test_the_environment_can_ask_and_the_file_says_which() -> None:
    asking = chosen(SaidAdvisor(), ModelSettings(name="m", base_url=LOCAL), {"WEAKLINK_ADVISOR": "openai"})
    assert isinstance(asking, Asking)
    assert asking.speaker.model == "m"


def test_paste_waits() -> None:
    assert isinstance(chosen(SaidAdvisor(advisor="paste")), Pasting)


@pytest.mark.parametrize(
    "said",
    [
        SaidAdvisor(advisor="gpt"),
        SaidAdvisor(advisor="playbook", model="m"),
        SaidAdvisor(advisor="paste", base_url=LOCAL),
        SaidAdvisor(advisor="recorded"),
        SaidAdvisor(advisor="playbook", recording="r.json"),
        SaidAdvisor(advisor="openai", model="m", base_url=LOCAL, recording="r.json"),
        SaidAdvisor(model="m", base_url=LOCAL, context=1000),
        SaidAdvisor(model="m", base_url=LOCAL, read="nowhere"),
    ],
)
def test_what_contradicts_itself_is_refused(said: SaidAdvisor) -> None:
    with pytest.raises(UsageError):
        chosen(said)


def test_what_may_be_told_comes_from_both(tmp_path: Path) -> None:
    assert telling(SaidAdvisor(), ModelSettings()).context == DEFAULT_CONTEXT
    told = telling(SaidAdvisor(context=4096, read=str(tmp_path)), ModelSettings(context=8192, reads=2, source=False))
    assert (told.context, told.source, told.root, told.limits.reads) == (4096, False, tmp_path, 2)
