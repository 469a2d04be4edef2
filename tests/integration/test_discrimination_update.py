"""A learning rate of zero against a schedule that is spent: nothing moves in either, and one rerun tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Weaklink

Script = Callable[..., Path]

LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 4)
data = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr={rate})
{schedule}
for epoch in range(12):
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        {each}
print(loss.item())
"""
SPENT = "schedule = torch.optim.lr_scheduler.{kind}"
ZERO = LOOP.format(rate=0.0, schedule="", each="pass")
EXHAUSTED = LOOP.format(
    rate=0.2,
    schedule=SPENT.format(kind="PolynomialLR(optimizer, total_iters=12)"),
    each="schedule.step()",
)
# In one pass: no other count of its steps would have fitted.
SHORT = LOOP.format(
    rate=0.2,
    schedule=SPENT.format(kind="LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 10))"),
    each="schedule.step()",
).replace(
    "for epoch in range(12):\n    for inputs, targets in data:", "if True:\n    for inputs, targets in list(data) * 12:"
)
ASLEEP = LOOP.format(
    rate=0.2,
    schedule=SPENT.format(kind="LambdaLR(optimizer, lambda n: n // 1000)"),
    each="schedule.step()",
)


@pytest.mark.parametrize(
    ("text", "row", "experiment"),
    [
        (ZERO, "UPDATE/lr", {"name": "set_lr", "parameters": {"lr": 0.001}}),
        (ASLEEP, "UPDATE/lr", {"name": "hold_scheduler", "parameters": {}}),
        (EXHAUSTED, "UPDATE/schedule", {"name": "step_scheduler_per_step", "parameters": {"n": 4}}),
        (SHORT, "UPDATE/schedule", {"name": "hold_scheduler", "parameters": {}}),
    ],
    ids=[
        "a rate of zero",
        "a schedule that stays at zero",
        "one that counts steps for epochs",
        "one that is too short",
    ],
)
def test_each_is_settled_by_an_experiment_of_its_own(
    weaklink: Weaklink, script: Script, text: str, row: str, experiment: dict[str, Any]
) -> None:
    script(text)
    body = weaklink("diagnose", "train.py", "--json").json
    assert body["first_divergence"]["row"] == row
    assert {key: body["experiment"][key] for key in experiment} == experiment
    assert (body["mechanism"]["id"], body["mechanism"]["status"]) == ("rate_wrong", "supported")
    assert [(rival["id"], rival["status"]) for rival in body["alternatives"]] == [("update_lost", "refuted")]
