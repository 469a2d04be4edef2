"""`weaklink ledger`: the chain of one run, and nothing left behind. Factories and rules on the command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import COMMAND, STALE_HEAD, Diagnosed, Weaklink, environment, training

from weaklink.collector.evidence import read_evidence

Script = Callable[..., Path]

FACTORY = """
import torch
from torch import nn

from weaklink.collector import TrainingSystem


def build():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model[2] = nn.Linear(8, 2)
    return TrainingSystem(model=model, optimizer=optimizer, inputs=x, targets=(x[:, 0] > 0).long())
"""

RULES = """
def right(x):
    return (x[:, 0] > 0).long()


def wrong(x):
    return 1 - right(x)
"""


def test_a_divergence_as_a_table_that_ends_with_its_name(tmp_path: Path, weaklink: Weaklink) -> None:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    ran = weaklink("ledger", "train.py", "--out", "kept/evidence.json")
    assert ran.code == 1, ran.err
    assert ran.out.startswith("LEARNING CHAIN  train.py")
    assert "<-- FIRST DIVERGENCE (exact)" in ran.out
    assert ran.out.split("\n\n")[-1].startswith("First divergence: OWNERSHIP/owned fails (exact): ")
    assert read_evidence(tmp_path / "kept" / "evidence.json").subject.name == "train.py"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "train.py"]


def test_json_is_one_object_and_the_chain_is_that_of_a_diagnosis(
    tmp_path: Path, stale_head: Diagnosed, weaklink: Weaklink
) -> None:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    ran = weaklink("ledger", "train.py", "--json")
    assert ran.code == 1, ran.err
    body = ran.json
    assert list(body) == [
        "schema",
        "subject",
        "branch",
        "outcome",
        "first_divergence",
        "suspected",
        "rows",
        "parameters",
    ]
    assert body["schema"] == "weaklink.chain/1"
    assert body["first_divergence"] == {"row": "OWNERSHIP/owned", "status": "fail", "basis": "exact"}
    evidence = stale_head.incident.evidence
    assert evidence is not None
    assert [(row["id"], row["status"], row["text"]) for row in body["rows"]] == [
        (row.id, row.status, row.text) for row in evidence.rows
    ]


def test_a_suspicion_alone_accuses_nobody_unless_asked(script: Script, weaklink: Weaklink) -> None:
    # Parameters that existed when the optimizer was built and were left out: suspected at most.
    script(training().replace("SGD(model.parameters()", "SGD(model[2].parameters()"))
    ran = weaklink("ledger", "train.py")
    assert ran.code == 0, ran.out
    assert ran.out.rstrip().endswith("First divergence: none; OWNERSHIP/owned is suspected.")
    strict = weaklink("ledger", "train.py", "--strict", "--json")
    assert strict.code == 1
    assert strict.json["first_divergence"] == {"row": "OWNERSHIP/owned", "status": "suspected", "basis": None}
    assert "OWNERSHIP/owned" in strict.json["suspected"]


def test_a_healthy_run_and_its_evidence_file(script: Script, weaklink: Weaklink) -> None:
    script(training())
    ran = weaklink("ledger", "train.py", "-o", "evidence.json")
    assert ran.code == 0, ran.err
    assert ran.out.rstrip().endswith("First divergence: none.")
    assert weaklink("ledger", "evidence.json").out == ran.out


def test_exit_codes_of_what_raised_and_of_what_trained_nothing(script: Script, weaklink: Weaklink) -> None:
    script(training("if step == 3: raise RuntimeError('on purpose')"))
    ran = weaklink("ledger", "train.py")
    assert ran.code == 1
    assert "RuntimeError at train.py:" in ran.out
    script("import torch\n")
    nothing = weaklink("ledger", "train.py", "--json")
    assert nothing.code == 2
    assert nothing.json["error"] == "NothingMeasuredError"


def test_a_factory_is_diagnosed_as_a_script_is(script: Script, weaklink: Weaklink) -> None:
    script(FACTORY)
    ran = weaklink("ledger", "train.py:build", "--json")
    assert ran.code == 1, ran.err
    assert ran.json["subject"] == {"kind": "factory", "name": "train.py:build", "argv": []}
    frozen = weaklink("diagnose", "train:build", "--no-rerun", "--json")
    assert frozen.json["first_divergence"]["row"] == "OWNERSHIP/owned"
    verified = weaklink("verify", frozen.json["incident"], "--json")
    assert verified.json["mechanism"]["status"] == "supported", verified.err
    assert "train_build" in verified.json["incident"]


def test_a_declared_rule_is_asked_and_goes_into_the_claim(script: Script, weaklink: Weaklink) -> None:
    script(training())
    script(RULES, "rules.py")
    assert weaklink("ledger", "train.py", "--rule", "rules.py:right").code == 0
    ran = weaklink("ledger", "train.py", "--rule", "rules:wrong", "--json")
    assert ran.code == 1, ran.err
    assert ran.json["first_divergence"]["basis"] == "declared"
    assert ran.json["first_divergence"]["row"].startswith("TASK/")


def test_ctrl_c_before_anything_was_measured_is_told_in_one_object(script: Script, tmp_path: Path) -> None:
    script("import time\nimport torch\nprint('waiting', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [*COMMAND, "ledger", "train.py", "--json"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    process.stderr.readline()  # the progress of a run that takes longer than two seconds
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["exit_code"] == 130
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
