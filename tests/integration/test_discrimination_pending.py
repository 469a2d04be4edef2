"""One exception of torch's, two causes: a step that came too early, and a parameter that the script changes itself.

Both raise at the same line with the same words; letting the step wait mends the first and not the second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Weaklink

EARLY = """
import torch
from torch import nn
torch.manual_seed(0)
generator = nn.Linear(2, 2)
critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
for step in range(4):
    fake, real = generator(torch.randn(3, 2)), torch.randn(3, 2)
    wanted = (critic(fake) - 1).pow(2).mean()
    judged = critic(fake.detach()).pow(2).mean() + (critic(real) - 1).pow(2).mean()
    of_critic.zero_grad()
    of_generator.zero_grad()
    judged.backward()
    of_critic.step()
    wanted.backward()
    of_generator.step()
"""
# What comes between is not the step alone: the weights are limited as well, and still are where the step waits.
CLAMPED = EARLY.replace(
    "    of_critic.step()\n",
    "    of_critic.step()\n    with torch.no_grad():\n        for weight in critic.parameters():\n"
    "            weight.clamp_(-0.5, 0.5)\n",
)


def diagnosed(weaklink: Weaklink, folder: Path, source: str) -> dict[str, Any]:
    (folder / "train.py").write_text(source, encoding="utf-8")
    ran = weaklink("diagnose", "train.py", "--json", "--no-capture")
    assert ran.code == 1, ran.err
    return ran.json


@pytest.mark.parametrize(
    ("source", "cause"), [(EARLY, "supported"), (CLAMPED, "refuted")], ids=["the step alone", "the weights by hand"]
)
def test_only_where_the_step_is_the_cause_does_waiting_mend_it(
    source: str, cause: str, weaklink: Weaklink, tmp_path: Path
) -> None:
    found = diagnosed(weaklink, tmp_path, source)

    assert found["first_divergence"]["row"] == "UPDATE/pending"
    assert found["mechanism"]["id"] == "step_before_backward"
    assert found["status"]["cause"] == cause
