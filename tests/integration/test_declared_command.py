"""Declarations as a user gives them: on the command line, in weaklink.toml, and in what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from conftest import Weaklink, training

from weaklink.agent.record.incident import Incident

Script = Callable[..., Path]


def test_a_declaration_is_judged_recorded_and_frozen_in_the_claim(
    weaklink: Weaklink, script: Script, tmp_path: Path
) -> None:
    script(training().replace("optimizer = ", "model[2] = nn.Linear(8, 2)\noptimizer = ").replace("0.5", "0.0"))
    (tmp_path / "weaklink.toml").write_text("trainable = ['2.*']\nclasses = 2\n")
    ran = weaklink("diagnose", "train.py", "--classes", "3", "--json", "--no-rerun")
    assert ran.code == 1
    assert ran.json["first_divergence"]["row"] == "OBJECTIVE/classes"
    incident = Incident.read(tmp_path / ran.json["incident"])
    declared = {"trainable": ["2.*"], "classes": 3}
    assert incident.opened.declared == declared
    assert incident.evidence is not None
    assert incident.evidence.declared == declared
    shown = weaklink("show", ran.json["incident"])
    assert "--trainable" in shown.out
    assert "--classes 3" in shown.out


def test_what_an_evidence_file_was_measured_with_stands(weaklink: Weaklink, script: Script, tmp_path: Path) -> None:
    source = training().replace("optimizer = ", "head = model[2]\noptimizer = ")
    script(source.replace("for step", "model[2] = nn.Linear(8, 2)\nfor step", 1))
    assert weaklink("observe", "train.py", "--trainable", "2.*").code == 0
    ran = weaklink("diagnose", "evidence.json", "--json")
    incident = Incident.read(tmp_path / ran.json["incident"])
    assert incident.frozen is not None
    assert incident.frozen.claim["declared"] == {"trainable": ["2.*"]}
    refused = weaklink("diagnose", "evidence.json", "--frozen", "0.*", "--json")
    assert refused.code == 2
    assert "measured with its declarations" in refused.out


def test_a_key_that_does_not_exist_is_a_usage_error(weaklink: Weaklink, script: Script, tmp_path: Path) -> None:
    script(training())
    (tmp_path / "weaklink.toml").write_text("trainabel = ['2.*']\n")
    for command in ("diagnose", "observe", "ledger"):
        ran = weaklink(command, "train.py", "--json")
        assert ran.code == 2
        error = json.loads(ran.out.splitlines()[-1])
        assert "trainabel" in json.dumps(error)
        assert "the nearest known one is trainable" in json.dumps(error)
