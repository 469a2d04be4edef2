"""weaklink.toml and the options that win over it: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from weaklink.agent.cli.said import Said
from weaklink.agent.settings import FILE, read_settings
from weaklink.collector.declared import Declared, Intent, Objective, matches
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Site

DOCS = Path(__file__).parents[2] / "docs"
WHOLE = """
task = "six numbers; which side of a plane they lie on"
rule = "labels.py:right"
classes = 2
trainable = ["head.*"]
frozen = ["features.*"]
user_code = ["*/ourlib/*"]

[objectives.generator]
site = "train.py:48"
parameters = ["Generator.*"]

[objectives.critic]
parameters = ["Critic.*"]

[metric]
name = "accuracy"
direction = "max"

[slices]
rare = "labels.py:right"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "labels.py").write_text("def right(x): ...\n")
    return tmp_path


def refused(text: str, folder: Path) -> str:
    (folder / FILE).write_text(text)
    with pytest.raises(UsageError) as error:
        read_settings(Said(), folder)
    return str(error.value)


def test_every_key_arrives(folder: Path) -> None:
    (folder / FILE).write_text(WHOLE)
    found = read_settings(Said(), folder)
    assert (found.task, found.rule, found.user_code) == (
        "six numbers; which side of a plane they lie on",
        "labels.py:right",
        ("*/ourlib/*",),
    )
    intent = found.intent
    assert (intent.trainable, intent.frozen, intent.classes) == (["head.*"], ["features.*"], 2)
    assert intent.objectives["generator"] == Objective(site="train.py:48", parameters=["Generator.*"])
    assert intent.objectives["critic"].site is None
    assert intent.metric is not None
    assert (intent.metric.name, intent.metric.direction) == ("accuracy", "max")
    assert intent.slices == {"rare": "labels.py:right"}


def test_without_a_file_nothing_is_declared(folder: Path) -> None:
    assert read_settings(Said(), folder).intent == Intent()
    assert Intent().said == {}


def test_the_command_line_wins_key_by_key(folder: Path) -> None:
    (folder / FILE).write_text(WHOLE)
    found = read_settings(Said(task="another", trainable=("last.*",), classes=3), folder)
    assert (found.task, found.intent.trainable, found.intent.classes) == ("another", ["last.*"], 3)
    assert (found.rule, found.intent.frozen) == ("labels.py:right", ["features.*"])


def test_another_file_is_read_instead(folder: Path) -> None:
    (folder / FILE).write_text("classes = 2\n")
    (folder / "other.toml").write_text("classes = 5\n")
    assert read_settings(Said(config="other.toml"), folder).intent.classes == 5
    with pytest.raises(UsageError, match="no such file"):
        read_settings(Said(config="nowhere.toml"), folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trainabel = ['a']", ("trainabel", "nearest known one is trainable")),
        ("[objectives.critic]\nparameter = ['a']", ("objectives.critic.parameter", "nearest known one is parameters")),
        ("[metric]\nname = 'loss'\ndirection = 'min'\nunit = 's'", ("metric.unit", "name, direction")),
        ("classes = '10'", ("classes", "integer")),
        ("classes = 0", ("classes", "greater than or equal to 1")),
        ("trainable = 'head.*'", ("trainable", "list")),
        ("frozen = [1]", ("frozen.0", "string")),
        ("[metric]\nname = 'loss'\ndirection = 'down'", ("metric.direction", "'max' or 'min'")),
        ("[objectives]\ncritic = ['a']", ("objectives.critic",)),
        ("[objectives.critic]\nsite = 'train.py:3'", ("objectives.critic.parameters", "required")),
        ("rule = 'labels.py:left'", ("rule in weaklink.toml", "no 'left'")),
        ("[slices]\nrare = 'nowhere.py:pick'", ("[slices] rare", "no such file")),
        ("task = ", ("no TOML",)),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_key(text: str, words: tuple[str, ...], folder: Path) -> None:
    message = refused(text, folder)
    assert all(word in message for word in words), message


def test_the_example_of_the_page_is_a_whole_file(folder: Path) -> None:
    page = (DOCS / "intent.md").read_text(encoding="utf-8")
    (folder / FILE).write_text(page.partition("```toml\n")[2].partition("```")[0])
    (folder / "labels.py").write_text("def rule(x): ...\ndef night(x): ...\n")
    said = read_settings(Said(), folder).intent.said
    assert set(said) == set(Intent.model_fields)


@pytest.mark.parametrize(
    ("place", "site", "same"),
    [
        ("train.py:48", "train.py:48", True),
        ("./train.py:48", "train.py:48", True),
        ("train.py:48", "src/train.py:48", True),
        ("train.py:48", "retrain.py:48", False),
        ("train.py:48", "train.py:480", False),
    ],
)
def test_a_site_is_matched_by_whole_names(place: str, site: str, same: bool) -> None:
    file, _, line = site.partition(":")
    objective = Objective(site=place, parameters=["*"])
    assert objective.at(Site(file=file, line=int(line), what="")) is same


def test_an_objective_without_a_line_takes_every_other_one() -> None:
    declared = Declared(
        objectives={"rest": Objective(parameters=["*"]), "first": Objective(site="a.py:1", parameters=["*"])}
    )
    assert declared.objective_at(Site(file="a.py", line=1, what="")) == "first"
    assert declared.objective_at(Site(file="a.py", line=2, what="")) == "rest"


def test_a_star_crosses_dots_and_letters_count() -> None:
    assert matches(["features.0.weight"], ["features.*"])
    assert not matches(["Features.0.weight"], ["features.*"])
    assert not matches(["features.0.weight"], [])
