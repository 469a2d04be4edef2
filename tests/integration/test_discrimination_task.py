"""Pairs of causes with one symptom, told apart by one rerun of a real script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Weaklink

# Three classes along a line; the model is never right on the middle one. Either its label is the one that the loss
# ignores, or the model cannot tell a middle from its two sides.
CLASSES = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
y = torch.randint(3, (600,), generator=g)
x = (y[:, None] - 1) * torch.tensor([2.0, -1.0, 1.0, 2.0]) + 0.3 * torch.randn(600, 4, generator=g)
model = MODEL
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(3):
    model.train()
    for rows in torch.randperm(600).split(30):
        loss = F.cross_entropy(model(x[rows]), y[rows] OPTIONS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        predicted = model(x).argmax(1)
    print([int(((predicted == label) & (y == label)).sum()) for label in range(3)])
    print(float((predicted == y).float().mean()))
"""
LARGE = "nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))"
# Three multiples of one number: the largest of them is one class above zero and another one below, never the third.
SMALL = "nn.Sequential(nn.Linear(4, 1, bias=False), nn.Linear(1, 3, bias=False))"


def classes(model: str, options: str = "") -> str:
    return CLASSES.replace("MODEL", model).replace("OPTIONS", options)


def diagnosed(weaklink: Weaklink, script: Callable[[str], Path], source: str) -> dict[str, Any]:
    script(source)
    return weaklink("diagnose", "train.py", "--json").json


def test_an_ignored_class_is_supported_and_a_model_too_small_refuted(
    weaklink: Weaklink, script: Callable[[str], Path]
) -> None:
    body = diagnosed(weaklink, script, classes(LARGE, ", ignore_index=1"))
    assert body["first_divergence"]["row"] == "OBJECTIVE/supervised"
    assert body["experiment"]["name"] == "without_ignore_index"
    assert (body["mechanism"]["id"], body["mechanism"]["status"]) == ("supervision_missing", "supported")
    assert [(rival["id"], rival["status"]) for rival in body["alternatives"]] == [("capacity", "refuted")]


def test_a_class_that_is_supervised_and_not_learned_is_laid_to_no_mask(
    weaklink: Weaklink, script: Callable[[str], Path]
) -> None:
    body = diagnosed(weaklink, script, classes(SMALL))
    assert body["mechanism"] is None or body["mechanism"]["id"] != "supervision_missing"


def test_a_model_too_small_for_the_ignored_class_refutes_the_mask(
    weaklink: Weaklink, script: Callable[[str], Path]
) -> None:
    """Both at once: the label is ignored, and supervised it is not learned either. The mask alone explains nothing."""
    body = diagnosed(weaklink, script, classes(SMALL, ", ignore_index=1"))
    assert body["experiment"]["name"] == "without_ignore_index"
    assert (body["mechanism"]["id"], body["mechanism"]["status"]) == ("supervision_missing", "refuted")
