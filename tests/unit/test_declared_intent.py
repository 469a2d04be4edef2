"""What was declared, held against whole scripts: contradictions fail, and what only looks like one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collector_runs import line_of, observe_code, row, with_status

from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Evidence

COMMON = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(48, 6)
y = (x[:, 0] > 0).long()


class Net(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.head = nn.Linear(16, outputs)

    def forward(self, x):
        return self.head(self.features(x))


def fit(model, optimizer, steps=12, after=lambda step: None):
    for step in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        after(step)


model = Net()
"""


def seen(body: str, folder: Path, **intent: Any) -> Evidence:
    return observe_code(COMMON + body, folder, intent=Intent.model_validate(intent))


def failing(evidence: Evidence) -> list[str]:
    return list(with_status(evidence, "fail"))


ADAM = "fit(model, torch.optim.Adam(model.parameters(), 1e-2))\n"
ALL = ["*"]

# -- what contradicts a declaration ------------------------------------------------------------------------------------

BROKEN = {
    "frozen": ("model.features.requires_grad_(False)\n" + ADAM, {"trainable": ALL}, "DEPENDENCY/declared"),
    "left_out": (
        "fit(model, torch.optim.Adam(model.head.parameters(), 1e-2))\n",
        {"trainable": ["features.*", "head.*"]},
        "OWNERSHIP/owned",
    ),
    "not_reached": (
        "model.features.register_forward_hook(lambda module, args, out: out.detach())\n" + ADAM,
        {"trainable": ALL},
        "DEPENDENCY/reached",
    ),
    "group_at_a_rate_of_zero": (
        "groups = [{'params': model.features.parameters(), 'lr': 0.0}, {'params': model.head.parameters()}]\n"
        "fit(model, torch.optim.Adam(groups, 1e-2))\n",
        {"trainable": ["features.*", "head.*"]},
        "UPDATE/declared",
    ),
    "meant_to_rest_and_stepped": (ADAM, {"frozen": ["features.*"]}, "UPDATE/frozen"),
    "meant_to_rest_and_decayed": (
        "model.head.weight.register_hook(lambda g: g * 0)\n"
        "fit(model, torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1))\n",
        {"frozen": ["head.weight"]},
        "UPDATE/frozen",
    ),
    "fewer_outputs_than_classes": (ADAM, {"classes": 3}, "OBJECTIVE/classes"),
    "targets_beyond_the_classes": (
        "model = Net(3)\ny = y + 1\n" + ADAM,
        {"classes": 2},
        "OBJECTIVE/classes",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_contradicts_a_declaration_fails(name: str, tmp_path: Path) -> None:
    body, intent, expected = BROKEN[name]
    evidence = seen(body, tmp_path, **intent)
    assert evidence.first_divergence is not None
    assert (evidence.first_divergence.id, evidence.first_divergence.basis) == (expected, "declared")
    assert evidence.first_divergence.where
    assert evidence.declared == Intent.model_validate(intent).said


def test_the_line_of_the_optimizer_comes_first(tmp_path: Path) -> None:
    body, intent, _ = BROKEN["meant_to_rest_and_stepped"]
    sites = row(seen(body, tmp_path, **intent), "UPDATE/frozen").where
    assert sites[0].line == line_of(COMMON + body, "torch.optim.Adam(model")


# -- what does not -----------------------------------------------------------------------------------------------------

HEALTHY = {
    "everything_trained": (ADAM, {"trainable": ALL, "classes": 2}),
    "head_alone": (
        "model.features.requires_grad_(False)\nfit(model, torch.optim.Adam(model.head.parameters(), 1e-2))\n",
        {"trainable": ["head.*"], "frozen": ["features.*"]},
    ),
    # Left trainable and out of the optimizer: without the declaration that is asked about.
    "head_alone_not_frozen": (
        "fit(model, torch.optim.Adam(model.head.parameters(), 1e-2))\n",
        {"frozen": ["features.*"]},
    ),
    "both_patterns_the_resting_one_wins": (
        "model.features.requires_grad_(False)\nfit(model, torch.optim.Adam(model.head.parameters(), 1e-2))\n",
        {"trainable": ALL, "frozen": ["features.*"]},
    ),
    "thawed_late": (
        """
model.features.requires_grad_(False)
optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
def thaw(step):
    if step == 28:
        model.features.requires_grad_(True)
        optimizer.add_param_group({"params": model.features.parameters()})
fit(model, optimizer, 32, thaw)
""",
        {"trainable": ALL},
    ),
    "two_stages_in_a_function": (
        """
def main():
    model = Net()
    model.features.requires_grad_(False)
    fit(model, torch.optim.SGD(model.head.parameters(), 0.1), 30)
    model.features.requires_grad_(True)
    fit(model, torch.optim.SGD(model.features.parameters(), 0.05), 9)
main()
""",
        {"trainable": ["features.*", "head.*"]},
    ),
    "frozen_at_the_end_for_export": (ADAM + "model.requires_grad_(False)\n", {"trainable": ALL}),
    # Its gradient is what rounding leaves of zero; rate times gradient is below its last place.
    "bias_before_a_normalisation": (
        """
model.features = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh())
with torch.no_grad():
    model.features[0].bias.fill_(1e3)
fit(model, torch.optim.SGD(model.parameters(), 1e-3))
""",
        {"trainable": ALL},
    ),
    "zero_initialised_adapter": (
        """
class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = Net().requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.up.weight)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x))
model = Adapter()
fit(model, torch.optim.SGD([*model.down.parameters(), *model.up.parameters()], 0.1), 2)
""",
        {"trainable": ["down.*", "up.*"], "frozen": ["base.*"]},
    ),
    "warmup_from_zero": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, step - 12) / 4)
fit(model, optimizer, 18, lambda step: warmup.step())
""",
        {"trainable": ALL},
    ),
    "running_average_into_a_resting_teacher": (
        """
teacher = Net().requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(12):
    out = model(x)
    with torch.no_grad():
        wanted = teacher(x)
    optimizer.zero_grad()
    (F.cross_entropy(out, y) + F.mse_loss(out, wanted)).backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), model.parameters()):
            slow.lerp_(fast, 0.1)
""",
        {"frozen": ["Net2.*"], "trainable": ["Net.*"]},
    ),
    "resting_in_the_optimizer_at_a_rate_of_zero": (
        "groups = [{'params': model.features.parameters(), 'lr': 0.0}, {'params': model.head.parameters()}]\n"
        "fit(model, torch.optim.SGD(groups, 0.1))\n",
        {"frozen": ["features.*"]},
    ),
    "statistics_of_a_resting_normalisation": (
        """
model.features = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh())
model.features.requires_grad_(False)
fit(model, torch.optim.Adam(model.head.parameters(), 1e-2))
""",
        {"frozen": ["features.*"]},
    ),
    "outputs_padded_beyond_the_classes": ("model = Net(8)\n" + ADAM, {"classes": 2}),
    "ignored_targets": ("y[:5] = -100\n" + ADAM, {"classes": 2}),
    "two_heads_of_which_one_is_meant": (
        """
model, other = Net(), Net(5)
optimizer = torch.optim.Adam([*model.parameters(), *other.parameters()], 1e-2)
for step in range(6):
    optimizer.zero_grad()
    (F.cross_entropy(other(x), (x[:, 1] > 0).long() + 2) + F.cross_entropy(model(x), y)).backward()
    optimizer.step()
""",
        {"classes": 2},
    ),
    "one_score_for_two_classes": (
        """
model = Net(1)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(6):
    optimizer.zero_grad()
    F.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float()).backward()
    optimizer.step()
""",
        {"classes": 2},
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_run_as_declared_is_not_accused(name: str, tmp_path: Path) -> None:
    body, intent = HEALTHY[name]
    evidence = seen(body, tmp_path, **intent)
    assert with_status(evidence, "fail") == {}
    assert with_status(evidence, "suspected") == {}


def test_a_misspelt_pattern_is_said_with_the_nearest_names_and_loses_nothing(tmp_path: Path) -> None:
    body = "fit(model, torch.optim.Adam(model.head.parameters(), 0.0))\n"
    evidence = seen(body, tmp_path, trainable=["haed.*"])
    found = row(evidence, "DEPENDENCY/declared")
    assert found.status == "not_measured"
    assert found.reason is not None
    assert "'haed.*' matches no parameter" in found.reason
    assert "head.bias" in found.reason
    assert "UPDATE/lr" in failing(evidence)  # the run is read as if nothing was declared


def test_nothing_declared_is_said_so(tmp_path: Path) -> None:
    evidence = seen(ADAM, tmp_path)
    for row_id in ("DEPENDENCY/declared", "UPDATE/declared", "OBJECTIVE/classes"):
        found = row(evidence, row_id)
        assert found.status == "not_measured"
        assert "declared" in (found.reason or "")
    assert evidence.declared == {}


def test_names_may_be_those_of_the_outermost_module(tmp_path: Path) -> None:
    body = """
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Net()
whole = Whole()
whole.inner.features.requires_grad_(False)
fit(whole.inner, torch.optim.Adam(whole.inner.head.parameters(), 1e-2))
"""
    assert failing(seen(body, tmp_path, trainable=["inner.head.*"])) == []
    assert "DEPENDENCY/declared" in failing(seen(body, tmp_path, trainable=["inner.*"]))
