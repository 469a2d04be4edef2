"""What is frozen, thawed and added while a run goes on, and parameters that a thaw leaves without an optimizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

HEAD = """
import copy, json, re, torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 8)
y = (x[:, 0] > 0).long()

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)
    def forward(self, inputs):
        return self.head(self.backbone(inputs))

model = Classifier()

def train(optimizer, steps=8):
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""

THAWED_UNOWNED = """
def set_trainable(flag):
    for p in model.backbone.parameters():
        p.requires_grad_(flag)

set_trainable(False)  # frozen
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
train(optimizer)
set_trainable(True)  # thawed
train(optimizer)
"""
ASSIGNED = """
for p in model.backbone.parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
train(optimizer)
for p in model.backbone.parameters():
    p.requires_grad = True
train(optimizer, 40)
"""


@pytest.mark.parametrize("body", [THAWED_UNOWNED, ASSIGNED])
def test_what_is_thawed_for_good_and_in_no_optimizer_is_left_out_by_accident(tmp_path, body):
    owned = row(observe_code(HEAD + body, tmp_path), "OWNERSHIP/owned")
    assert (owned.status, owned.basis) == ("fail", "exact"), owned.text
    if "# frozen" in body:
        lines = [site.line for site in owned.where[:2]]
        assert lines == [line_of(HEAD + body, "# frozen"), line_of(HEAD + body, "# thawed")]


def test_changes_are_told_with_their_step_and_line(tmp_path):
    evidence = observe_code(HEAD + THAWED_UNOWNED, tmp_path)
    changes = row(evidence, "UPDATE/changes")
    assert changes.status == "evidence"
    assert changes.step == 8
    assert "after step 8 made trainable" in changes.text


def test_a_run_in_which_nothing_changes_has_no_such_row(tmp_path):
    evidence = observe_code(HEAD + "train(torch.optim.SGD(model.parameters(), 0.1))", tmp_path)
    assert evidence.row("UPDATE/changes") is None


HEALTHY = {
    "given_to_the_optimizer": """
model.backbone.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
train(optimizer)
model.backbone.requires_grad_(True)
optimizer.add_param_group({"params": model.backbone.parameters(), "lr": 0.01})
train(optimizer)
""",
    "held_from_the_beginning": """
model.backbone.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(optimizer)
model.backbone.requires_grad_(True)
train(optimizer)
""",
    "thawed_for_a_look_at_gradients_and_frozen_again": """
model.backbone.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
for _ in range(3):
    train(optimizer)
    model.backbone.requires_grad_(True)
    F.cross_entropy(model(x), y).backward()
    model.zero_grad()
    model.backbone.requires_grad_(False)
""",
    "thawed_after_the_last_step": """
model.backbone.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
train(optimizer)
model.backbone.requires_grad_(True)
for _ in range(4):
    F.cross_entropy(model(x), y).backward()
print([p.grad.norm() for p in model.parameters()])
""",
    "a_loss_network_that_is_frozen_for_a_while": """
judge = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
second = torch.optim.SGD(judge.parameters(), 0.1)
for _ in range(20):
    judge.requires_grad_(False)
    optimizer.zero_grad()
    F.cross_entropy(judge(model(x)), y).backward()
    optimizer.step()
    judge.requires_grad_(True)
    second.zero_grad()
    F.cross_entropy(judge(model(x).detach()), y).backward()
    second.step()
""",
    "a_new_optimizer_for_the_second_stage": """
model.backbone.requires_grad_(False)
train(torch.optim.SGD(model.head.parameters(), 0.1))
model.backbone.requires_grad_(True)
train(torch.optim.SGD(model.parameters(), 0.01))
""",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_changes_on_purpose_is_not_accused(tmp_path, name):
    evidence = observe_code(HEAD + HEALTHY[name], tmp_path)
    wrong = {**with_status(evidence, "fail"), **with_status(evidence, "suspected")}
    assert "OWNERSHIP/owned" not in {k for k, _ in with_status(evidence, "fail").items()}, wrong
    assert not {"DEPENDENCY/reached", "UPDATE/moved"} & wrong.keys(), wrong


# -- left out by a pattern in the settings -----------------------------------------------------------------------------

BY_PATTERN = """
settings = json.load(open("settings.json"))
def matches(name, patterns):
    return any(re.search(pattern, name) for pattern in patterns)
held = [p for name, p in model.named_parameters() if not matches(name, settings["exclude"])]
train(torch.optim.SGD(held, 0.1))
"""


def test_the_settings_line_that_leaves_parameters_out_is_named_first(tmp_path: Path) -> None:
    patterns = {"no_decay": ["bias$", "backbone\\.0\\."], "exclude": ["teacher\\.", "backbone\\.0\\."]}
    lines = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in patterns.items())
    text = "{\n" + lines + "\n}\n"
    (tmp_path / "settings.json").write_text(text, encoding="utf-8")
    owned = row(observe_code(HEAD + BY_PATTERN, tmp_path), "OWNERSHIP/owned")
    assert owned.status == "suspected"
    assert (owned.where[0].file, owned.where[0].line) == ("settings.json", 3)


# -- a group at rest ---------------------------------------------------------------------------------------------------

GROUP_AT_ZERO = """
groups = [{"params": model.head.parameters()}, {"params": model.backbone.parameters(), "lr": 0.0}]
train(torch.optim.SGD(groups, 0.1))
"""


def test_a_group_whose_rate_is_always_zero_is_named_and_not_accused(tmp_path: Path) -> None:
    rates = row(observe_code(HEAD + GROUP_AT_ZERO, tmp_path), "UPDATE/lr")
    assert rates.status == "evidence"
    assert "zero at every step in group 1 of SGD" in rates.text
