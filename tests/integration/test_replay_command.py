"""`weaklink replay`: a receipt is written, found again, and differs when the script does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import STALE_HEAD, Weaklink


@pytest.fixture
def replays(tmp_path: Path) -> Path:
    folder = tmp_path / "replays" / "stale_head"
    folder.mkdir(parents=True)
    shutil.copy(STALE_HEAD, folder / "train.py")
    return tmp_path / "replays"


def test_written_equal_and_then_different(replays: Path, tmp_path: Path, weaklink: Weaklink) -> None:
    written = weaklink("replay", "stale_head", "--write")
    assert written.code == 0, written.err
    receipt = replays / "stale_head" / "receipt.json"
    assert written.out.strip() == str(receipt.relative_to(tmp_path))
    assert str(tmp_path) not in receipt.read_text()
    assert sorted(path.name for path in replays.glob("*/*")) == ["receipt.json", "train.py"]

    equal = weaklink("replay", "--all", "--json")
    assert equal.code == 0, equal.out
    assert equal.json == {
        "schema": "weaklink.replay/1",
        "replays": [{"name": "stale_head", "equal": True, "differences": [], "skipped": []}],
    }

    script = replays / "stale_head" / "train.py"
    script.write_text(script.read_text().replace("manual_seed(7)", "manual_seed(8)"))
    # By its folder, from another place: every path in a receipt is relative to the replay.
    ran = weaklink("replay", str(replays / "stale_head"), cwd=replays)
    assert ran.code == 1, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "stale_head: DIFFERS"
    assert any(line.startswith("  claim sources[0].sha256: receipt ") for line in lines)
    assert any(line.startswith("  losses first: receipt 0.6836") for line in lines)
    assert lines[-1] == "1 replay, 1 differs"


def test_without_a_name_it_lists_them_and_a_wrong_name_does_too(replays: Path, weaklink: Weaklink) -> None:
    listed = weaklink("replay")
    assert listed.code == 0
    assert listed.out.startswith("stale_head  no receipt yet")
    assert weaklink("replay", "--json").json["replays"] == [{"name": "stale_head", "receipt": False}]
    wrong = weaklink("replay", "fresh_head", "--json")
    assert wrong.code == 2
    assert wrong.json["hint"] == "there are: stale_head."


def test_no_receipt_is_no_equality(replays: Path, weaklink: Weaklink) -> None:
    ran = weaklink("replay", "--all")
    assert ran.code == 2
    assert ran.out == ""
    assert "weaklink replay replays/stale_head --write" in ran.err
