"""`weaklink drill` on real runs, and its replays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, Weaklink, training

FACTORY = """
import torch
from torch import nn

from weaklink.collector import TrainingSystem


def build() -> TrainingSystem:
    torch.manual_seed(0)
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
    targets = x.sum(dim=1, keepdim=True)
    return TrainingSystem(
        model=model, optimizer=optimizer, inputs=x, targets=targets, loss_fn=nn.functional.mse_loss, steps=30
    )
"""


def test_a_run_that_learns_is_not_drilled(weaklink: Weaklink, script: Callable[..., Path], tmp_path: Path) -> None:
    script(training())
    ran = weaklink("drill", "train.py", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["outcome"] == "nothing to drill"
    assert ran.json["seeds"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"], "nothing is recorded"


def test_a_factory_whose_steps_are_too_long(weaklink: Weaklink, script: Callable[..., Path]) -> None:
    script(FACTORY)
    ran = weaklink("drill", "train.py:build", "--json")
    assert ran.code == 0, ran.err
    body = ran.json
    assert body["branch"] in ("diverging", "nonfinite")
    assert body["fix"]["name"] == "scale_lr"
    assert [each["seed"] for each in body["seeds"]] == [0, 1, 2]
    firsts = [each["baseline"]["loss_first"] for each in body["seeds"]]
    assert len(set(firsts)) == 3, "each seed is another start"
    for each in body["seeds"]:
        assert each["baseline"]["loss_first"] == each["treated"]["loss_first"], "and the same one with the fix"


def test_an_evidence_file_cannot_be_drilled(weaklink: Weaklink, tmp_path: Path) -> None:
    (tmp_path / "evidence.json").write_text("{}")
    ran = weaklink("drill", "evidence.json", "--json")
    assert ran.code == 2
    assert "runs the subject again" in ran.json["message"]


def test_a_replay_equals_its_receipt_and_an_edited_one_does_not(weaklink: Weaklink, tmp_path: Path) -> None:
    name = "drill_flat"
    folder = Path(shutil.copytree(ROOT / "replays" / name, tmp_path / "replays" / name))
    equal = weaklink("replay", name)
    assert equal.code == 0, equal.out
    assert equal.out.splitlines()[0].startswith(f"{name}: equal")
    receipt = folder / "receipt.json"
    receipt.write_text(receipt.read_text().replace('"outcome": "established"', '"outcome": "not established"'))
    differs = weaklink("replay", name)
    assert differs.code == 1
    assert '  outcome: receipt "not established", now "established"' in differs.out.splitlines()
