"""What a word on the command line is taken for: a script, a factory, a rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence_samples import stale_head_evidence
from test_reporters_samples import frozen_only, stale_head

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.commands.subjects import read_subject
from weaklink.agent.freeze import freeze
from weaklink.agent.reporters.blocks import Command
from weaklink.agent.reporters.next_step import diagnose_command, next_step
from weaklink.agent.subject_files import located, located_rule, named_function, script_of, with_script
from weaklink.collector.errors import SubjectError, UsageError
from weaklink.collector.evidence import SourceFile, Subject
from weaklink.collector.job import Pins


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    for name in ("train.py", "src/train.py", "rules.py", "odd.py:name"):
        (tmp_path / name).write_text("")
    (tmp_path / "rules.py").write_text("try:\n    from os import path as targets\nexcept ImportError:\n    pass\n")
    return tmp_path


@pytest.mark.parametrize("word", ["train.py:build", "src/train.py:build", "train:build", "package.module:build"])
def test_a_place_and_a_function_are_a_factory(folder: Path, word: str) -> None:
    subject = read_subject([word], None, folder)
    assert (subject.kind, subject.name, subject.argv) == ("factory", word, [])
    assert diagnose_command(subject) == f"weaklink diagnose {word}"


@pytest.mark.parametrize("word", ["train.py", "src/train.py", "odd.py:name"])
def test_a_file_that_exists_is_a_script(folder: Path, word: str) -> None:
    subject = read_subject([word, "--lr", "1"], None, folder)
    assert (subject.kind, subject.name, subject.argv) == ("script", word, ["--lr", "1"])


@pytest.mark.parametrize(
    "word",
    [
        "C:\\runs\\train.py",
        "C:/runs/train.py",
        "https://host/train.py",
        "train.py:",
        ":build",
        "train.py:3",
        "a b:build",
    ],
)
def test_other_words_with_a_colon_are_scripts_that_are_not_there(folder: Path, word: str) -> None:
    with pytest.raises(SubjectError, match="no such script"):
        read_subject([word], None, folder)


def test_the_file_of_a_windows_factory_is_whole() -> None:
    assert script_of(Subject(kind="factory", name="C:\\runs\\train.py:build")) == "C:\\runs\\train.py"


def test_a_factory_in_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(SubjectError) as caught:
        read_subject(["trian.py:build"], None, folder)
    assert caught.value.about == "trian.py"
    assert "train.py" in str(caught.value.hint)


def test_a_factory_takes_no_arguments(folder: Path) -> None:
    with pytest.raises(UsageError, match="no arguments"):
        read_subject(["train.py:build", "--lr", "1"], None, folder)


def test_a_rule_is_named_as_seen_from_the_folder(folder: Path) -> None:
    assert named_function(None, folder, "--rule") is None
    assert named_function("package.rules:targets", folder, "--rule") == "package.rules:targets"
    assert named_function(str(folder / "rules.py") + ":targets", folder, "--rule") == "rules.py:targets"
    assert named_function("../rules.py:targets", folder / "src", "--rule") == "../rules.py:targets"


@pytest.mark.parametrize(
    "word", ["targets", "rules.py", "rules.py:", "gone.py:targets", "rules.py:a.b", "rules.py:target"]
)
def test_what_names_no_function_is_no_rule(folder: Path, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_function(word, folder, "--rule")
    assert caught.value.hint


def test_a_run_elsewhere_finds_files_inside_by_their_relative_path_and_others_by_their_own(folder: Path) -> None:
    assert located("src/../train.py", folder) == "train.py"
    assert located("../train.py", folder / "src") == str((folder / "train.py").resolve())
    assert located_rule("../rules.py:targets", folder / "src") == f"{(folder / 'rules.py').resolve()}:targets"
    assert located_rule("rules:targets", folder) == "rules:targets"
    moved = with_script(Subject(kind="factory", name="a/train.py:build"), "train.py")
    assert (moved.kind, moved.name) == ("factory", "train.py:build")


@pytest.mark.parametrize("typed", ["train.py:build", "./train.py:build", "/home/a/run/train.py:build"])
def test_however_a_factory_was_typed_the_claim_is_the_same(typed: str) -> None:
    evidence = stale_head_evidence()
    evidence.sources = [SourceFile(path="train.py", sha256="0" * 64)]
    evidence.subject = Subject(kind="factory", name=typed)
    claim = freeze(evidence, Playbook().advise(evidence, "", []), 50, Pins()).claim
    assert claim["subject"]["name"] == "train.py:build"


def test_a_declared_rule_belongs_to_the_claim() -> None:
    evidence = stale_head_evidence()
    proposal = Playbook().advise(evidence, "", [])
    plain, ruled = freeze(evidence, proposal, 50, Pins()), freeze(evidence, proposal, 50, Pins(), "rules.py:targets")
    assert ruled.claim == plain.claim | {"rule": "rules.py:targets"}
    assert ruled.claim_sha256 != plain.claim_sha256


def test_the_command_to_diagnose_again_keeps_the_rule() -> None:
    sample = stale_head()
    sample.opened.options["rule"] = "rules.py:targets"
    commands = [block.text for block in next_step(sample).blocks if isinstance(block, Command)]
    assert "weaklink diagnose train.py --rule rules.py:targets" in commands


def test_what_was_measured_in_a_process_of_the_users_own_points_to_a_factory() -> None:
    sample = frozen_only()
    commands = [block.text for block in next_step(sample).blocks if isinstance(block, Command)]
    assert commands == [f"weaklink verify {sample.folder}"]
    sample.opened.subject = Subject(kind="process", name="a notebook")
    commands = [block.text for block in next_step(sample).blocks if isinstance(block, Command)]
    assert commands == ["weaklink diagnose train.py:build"]
