"""Healthy scripts of the kinds people write, through the real command: nobody is accused, and nobody is suspected.

Each script is one file in `tests/healthy_scripts`, as short as such scripts are; many do something that a rule of ours
once took for a fault.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Weaklink

from weaklink.collector.evidence import read_evidence

FOLDER = Path(__file__).resolve().parents[1] / "healthy_scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
# `make healthy` runs all of them.
CHOSEN = SCRIPTS if os.environ.get("WEAKLINK_ALL") else SCRIPTS[::5]


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 30


@pytest.mark.parametrize("name", CHOSEN)
def test_a_healthy_script_is_neither_accused_nor_suspected(name: str, weaklink: Weaklink, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((FOLDER / f"{name}.py").read_text(encoding="utf-8"), encoding="utf-8")
    ran = weaklink("diagnose", "train.py", "--json")
    evidence = read_evidence(tmp_path / ran.json["incident"] / "evidence.json")
    assert evidence.outcome.ended == "completed", evidence.outcome
    diverging = {row.id: row.text for row in evidence.rows if row.status in ("fail", "suspected")}
    assert diverging == {}
    assert ran.json["first_divergence"] is None
    assert ran.code == 0
    assert evidence.problems == []
