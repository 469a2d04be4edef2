"""The collector that is pasted into a script: what it prints, and that the live run does not notice it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weaklink.agent.prompting.prompts import blank_prompt

SCRIPT = """
import copy, hashlib, random
import torch
from torch import nn

torch.manual_seed(42)
model = nn.Sequential()
model.features = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
model.head = nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
{change}
x = torch.randn(64, 2)
y = (x[:, 0] > 0).long()
{before}


def state():
    whole = hashlib.sha256()
    for name, value in model.state_dict().items():
        whole.update(name.encode() + value.numpy().tobytes())
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    moments = copy.deepcopy(optimizer.state_dict())
    modes = [module.training for module in model.modules()]
    return whole.hexdigest(), str(gradients), str(moments), modes, x.sum().item(), y.sum().item()


before = state(), torch.random.get_rng_state().tolist(), random.getstate()
report = weaklink_snippet(model, optimizer, {loss}, x, y)
after = state(), torch.random.get_rng_state().tolist(), random.getstate()
assert before == after, "the live run was touched"
"""
STALE = "model.features.requires_grad_(False)\nmodel.head = nn.Linear(8, 2)"
DOUBLED = """
class CrossEntropyLoss:
    def __call__(self, scores, targets):
        return 2 * nn.functional.cross_entropy(scores, targets)
"""
PENALIZED = """
def penalized(scores, targets):
    return nn.functional.cross_entropy(scores, targets) + sum(p.square().sum() for p in model.parameters())
"""
STEPPED = "for _ in range(3):\n    nn.functional.cross_entropy(model(x), y).backward()\n    optimizer.step()"


def rows(
    tmp_path: Path, change: str = "", before: str = "", loss: str = "nn.CrossEntropyLoss()"
) -> dict[str, tuple[str, str]]:
    """What the snippet of the blank prompt prints, pasted in front of a small script."""
    fence = re.search(r"```python\n(.*?)\n```", blank_prompt(), re.DOTALL)
    assert fence is not None
    script = tmp_path / "train.py"
    script.write_text(fence.group(1) + "\n" + SCRIPT.format(change=change, before=before, loss=loss))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = (line.split(None, 2) for line in ran.stdout.splitlines())
    return {name: (status, text) for name, status, text in found}


@pytest.mark.parametrize("before", ["", STEPPED], ids=["new", "after three steps"])
def test_a_healthy_run_is_not_accused(tmp_path: Path, before: str) -> None:
    found = rows(tmp_path, before=before)
    assert {status for status, _ in found.values()} == {"ok", "-"}
    assert found["OWNERSHIP/owned"][1] == "6 of 6"
    assert found["UPDATE/moved"][1] == "6 of 6"
    assert found["GRADIENT/earlier"][1].startswith("6 of 6" if before else "0 of 6")


def test_a_loss_that_reads_the_live_model_leaves_no_gradient_there(tmp_path: Path) -> None:
    assert rows(tmp_path, change=PENALIZED, loss="penalized")["GRADIENT/present"] == ("ok", "6 of 6")


def test_what_raises_ends_the_report_and_not_the_run(tmp_path: Path) -> None:
    change = "def failing(scores, targets):\n    raise RuntimeError('no such loss')"
    assert rows(tmp_path, change=change, loss="failing")["stopped"] == ("-", "RuntimeError: no such loss")


def test_the_stale_head(tmp_path: Path) -> None:
    found = rows(tmp_path, change=STALE)
    assert found["OWNERSHIP/owned"] == ("LOOK", "0 of 2; not: head.weight, head.bias")
    assert found["OWNERSHIP/stale"] == ("LOOK", "2 of 6 tensors in the optimizer are not the model's")
    assert found["UPDATE/moved"] == ("LOOK", "0 of 2; not: head.weight, head.bias")
    assert found["DEPENDENCY/reached"] == ("ok", "2 of 2")
    assert found["OBJECTIVE/by_hand"][0] == "ok"


def test_a_loss_that_is_not_the_one_it_is_named_for(tmp_path: Path) -> None:
    found = rows(tmp_path, change=DOUBLED, loss="CrossEntropyLoss()")
    assert found["OBJECTIVE/by_hand"][0] == "FAIL"
