"""Pairs of faults with one symptom, told apart by one rerun each: what the wrong one of the two claims is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Weaklink

NET = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(128, 4)
y = (x[:, 0] > 0).long()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        hidden = self.body(x){cut}
        return self.head(hidden)

net = Net()
{before}
optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
{after}
"""
LOOP = """
for step in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    {step}
"""
WINDOWS = """
for step in range(60):
    {once}
    for part in (slice(0, 64), slice(64, 128)):
        {each}
        loss = nn.functional.cross_entropy(net(x[part]), y[part])
        loss.backward()
    optimizer.step()
"""


def net(cut: str = "", before: str = "", after: str = "") -> str:
    return NET.format(cut=cut, before=before, after=after)


STEPS = LOOP.format(step="optimizer.step()")
# The body learns nothing: it is not what the optimizer holds, or no gradient comes to it.
STALE = net(after="net.body[0] = nn.Linear(4, 16)") + STEPS
DETACHED = net(cut=".detach()") + STEPS
# The loss stays where it is, to the last bit.
DEAD = net(before="nn.init.constant_(net.body[0].bias, -100.0); net.head.bias.requires_grad_(False)") + STEPS
NO_STEP = net() + LOOP.format(step="pass")
# Half of each window's gradient never comes to the step.
CLEARED = net() + WINDOWS.format(once="pass", each="optimizer.zero_grad()")
CUT = net(cut=".detach()") + WINDOWS.format(once="optimizer.zero_grad()", each="pass")


@pytest.mark.parametrize(
    ("source", "row", "family", "experiment"),
    [
        (STALE, "OWNERSHIP/owned", "optimizer_holds_old_objects", "own_missing_parameters"),
        (DETACHED, "DEPENDENCY/reached", "graph_cut", "reattach"),
        (DEAD, "GRADIENT/nonzero", "zero_gradient", "reinitialize"),
        (NO_STEP, "UPDATE/steps", "step_missing_or_skipped", "step_after_backward"),
        (CLEARED, "GRADIENT/cleared", "gradient_cleared_early", "keep_grad_until_step"),
        (CUT, "DEPENDENCY/reached", "graph_cut", "reattach"),
    ],
    ids=["stale", "detached", "dead", "no step", "cleared", "cut"],
)
def test_each_of_a_pair_is_supported_and_its_rivals_refuted(
    weaklink: Weaklink, script: Callable[[str], Path], source: str, row: str, family: str, experiment: str
) -> None:
    script(source)
    body = weaklink("diagnose", "train.py", "--json").json
    assert body["first_divergence"]["row"] == row
    assert body["experiment"]["name"] == experiment
    assert (body["mechanism"]["id"], body["mechanism"]["status"]) == (family, "supported")
    assert {other["status"] for other in body["alternatives"]} == {"refuted"}
