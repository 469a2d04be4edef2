"""The README is true: its first screen is what the demo prints, and its commands run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Weaklink, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
BLOCKS = [text for language, text in FENCED if not language]
# What differs from run to run or from machine to machine.
VARIES = (
    (r"in \d+(\.\d+)? s\)", "in N s)"),
    (r"context  [0-9a-f]{64}", "context HEX"),
    (r"= [0-9a-f]{12}…", "= HEX…"),
    (r"incidents/\S+", "incidents/ID"),
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder in which the README's relative paths hold."""
    shutil.copytree(ROOT / "replays", tmp_path / "replays", ignore=shutil.ignore_patterns("incidents", "__pycache__"))
    return tmp_path


def normal(text: str) -> list[str]:
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_first_screen_is_what_the_demo_prints(clone: Path, weaklink: Weaklink) -> None:
    command, *shown = BLOCKS[0].splitlines()
    assert command == "$ weaklink diagnose replays/stale_head/train.py"
    ran = weaklink(*command.split()[2:], cwd=clone)
    assert normal("\n".join(shown)) == normal(ran.out)


def test_every_command_of_the_readme_runs_word_for_word(clone: Path) -> None:
    lines = [line for block in BLOCKS[1:] for line in block.splitlines() if line.startswith(("weaklink", "INCIDENT="))]
    assert len(lines) >= 9
    script = "\n".join(f'{line}\ncode=$?; [ $code -le 1 ] || {{ echo "EXIT $code"; exit $code; }}' for line in lines)
    path = f"{Path(sys.executable).parent}:{environment().get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode <= 1, done.stdout[-500:] + done.stderr[-2000:]
    assert "EXIT" not in done.stdout
    assert "16 replays, none differs" in done.stdout
    assert (clone / "evidence.json").exists()
    assert list(clone.glob("incidents/*/incident.html"))


def test_the_python_of_the_readme_prints_what_stands_beside_it(tmp_path: Path) -> None:
    (code,) = [text for language, text in FENCED if language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    beside = [line.partition("  # ")[2] for line in code.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == [text.strip() for text in beside]


@pytest.mark.parametrize("path", sorted(re.findall(r"\]\(([^)#]+)\)", README)))
def test_every_link_leads_somewhere(path: str) -> None:
    assert path.startswith("https://") or (ROOT / path).exists()


def test_options_named_in_the_readme_exist(weaklink: Weaklink) -> None:
    commands = ("diagnose", "export", "ledger", "replay", "continue", "recover", "prompt")
    help_text = "".join(weaklink(command, "--help").out for command in commands)
    for option in set(re.findall(r"(?<![\w-])--[a-z-]+", README)):
        assert option in help_text, option
