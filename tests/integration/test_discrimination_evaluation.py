"""Stale statistics against an evaluation on other inputs: the same gap, and one rerun tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Weaklink

Script = Callable[..., Path]

GAP = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = 2.0 * torch.randn(3, 8)
y = torch.randint(0, 3, (480,))
x = centers[y] + torch.randn(480, 8)
data = DataLoader(TensorDataset({trained}[:360], y[:360]), batch_size=24, shuffle=True)
held_out = DataLoader(TensorDataset({evaluated}[360:], y[360:]), batch_size=60)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32, momentum={momentum}), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(8):
    model.train()
    for inputs, targets in data:
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(inputs).argmax(1) == targets).sum().item() for inputs, targets in held_out)
    print(loss.item(), right / 120)
"""
PREPARED = "(3 * x + 9)"
STALE = GAP.format(momentum="0.0", trained=PREPARED, evaluated=PREPARED)
# The same momentum and the same data, and the evaluated rows are not prepared as the trained ones.
UNPREPARED = GAP.format(momentum="0.1", trained=PREPARED, evaluated="x")


def diagnosed(weaklink: Weaklink) -> dict[str, Any]:
    return weaklink("diagnose", "train.py", "--json").json


def test_statistics_that_never_moved_are_supported_and_other_inputs_refuted(weaklink: Weaklink, script: Script) -> None:
    script(STALE)
    body = diagnosed(weaklink)
    assert body["first_divergence"]["row"] == "EVALUATION/buffers"
    assert body["experiment"]["name"] == "batchnorm_momentum"
    assert (body["mechanism"]["id"], body["mechanism"]["status"]) == ("stale_buffers", "supported")
    refuted = {each["id"] for each in body["alternatives"] if each["status"] == "refuted"}
    assert "evaluation_mismatch" in refuted


def test_other_inputs_are_asked_about_and_no_verdict_is_invented(weaklink: Weaklink, script: Script) -> None:
    script(UNPREPARED)
    body = diagnosed(weaklink)
    assert body["first_divergence"]["row"] == "EVALUATION/inputs"
    assert body["experiment"] is None
    assert (body["mechanism"]["id"], body["mechanism"]["status"]) == ("evaluation_mismatch", "not_tested")


def test_a_healthy_evaluation_gets_no_experiment(weaklink: Weaklink, script: Script) -> None:
    script(GAP.format(momentum="0.1", trained=PREPARED, evaluated=PREPARED))
    body = diagnosed(weaklink)
    assert body["first_divergence"] is None
    assert body["experiment"] is None
