"""The exported regression test, run by pytest: it fails on what was diagnosed and passes on the repair."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from conftest import Weaklink, call, environment

from weaklink.agent.record.bodies import Observed, Opened
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.pytest_report import render_pytest
from weaklink.collector.evidence import Environment, Evidence, Outcome, Row, Subject

# A head of a third of the classes is put in after the optimizer was built; the argument keeps it.
SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
if sys.argv[1] == "new head":
    model[2] = nn.Linear(8, 2)
for step in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def run(test: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name],
        cwd=test.parent,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_it_fails_on_the_broken_script_and_passes_on_the_fixed_one(tmp_path: Path, weaklink: Weaklink) -> None:
    work, fixed = tmp_path / "work", tmp_path / "fixed"
    for folder, text in ((work, SCRIPT), (fixed, SCRIPT.replace("    model[2] = nn", "    nn"))):
        folder.mkdir()
        (folder / "train.py").write_text(text, encoding="utf-8")
    incident = call("diagnose", "train.py", "--json", "--no-rerun", "--", "new head", cwd=work).json["incident"]
    exported = call("export", incident, "--format", "pytest", "-o", "../test_head.py", cwd=work)
    assert exported.code == 0
    test = tmp_path / "test_head.py"
    text = test.read_text(encoding="utf-8")
    read = Incident.read(work / incident)
    assert read.frozen is not None
    for said in (read.opened.id, read.frozen.claim_sha256, "OWNERSHIP/owned", '"new head"'):
        assert said in text
    broken = run(test)
    assert broken.returncode == 1
    assert "2 failed" in broken.stdout
    assert "2/4 expected parameters in an optimizer" in broken.stdout
    mended = run(test, WEAKLINK_FOLDER=str(fixed))
    assert mended.returncode == 0, mended.stdout
    assert "2 passed" in mended.stdout


def test_no_text_of_a_record_can_become_code(tmp_path: Path) -> None:
    hostile = 'x"""\nimport os\nos.system("no")\n\\"""{row}\x1b[31m\u202e'
    incident = Incident(
        folder=tmp_path,
        opened=Opened(
            id=hostile,
            created="",
            weaklink="0.1.0",
            subject=Subject(kind="script", name=hostile, argv=[hostile, "'\"\\"]),
            source="script",
            folder=f"/tmp/{hostile}",
            python="python3",
            advisor="playbook",
        ),
    )
    incident.observed = _observed(hostile)
    tree = ast.parse(render_pytest(incident, None))
    assert [type(node).__name__ for node in tree.body[:6]] == ["Expr", *["Import"] * 4, "ImportFrom"]
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert hostile in constants
    assert "'\"\\" in constants


def _observed(name: str) -> Observed:
    row = Row(id=f"OWNERSHIP/{name}", status="suspected", text=name)
    found = Evidence(
        subject=Subject(kind="script", name=name),
        outcome=Outcome(ended="completed"),
        environment=Environment(torch="2.13.0", python="3.11", platform="linux"),
        branch="flat",
        rows=[row],
    )
    return Observed(evidence=found, evidence_sha256="0" * 64)
